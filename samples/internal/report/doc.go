// Package report is what the sample programs show: tables for people, JSON for
// programs, and curves.
package report
