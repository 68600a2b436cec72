// Package ranks starts the processes of a sample program and ends them. The user
// starts one, the master. It spawns the others, sends all of them the table of
// ranks, and watches them: one that fails or dies ends the run. The others watch
// their master alone, so that whatever happens, none outlives the run.
package ranks
