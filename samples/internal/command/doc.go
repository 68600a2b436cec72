// Package command is what the command lines of the sample programs have in common:
// their flags, their exit statuses, and the frame of a run.
package command
