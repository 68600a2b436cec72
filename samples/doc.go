// Package samples has only tests: of the sample programs of the VMMC 2.0 manual,
// which are in the directories here, one each. See README.md.
package samples
