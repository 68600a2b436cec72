package model_test

// Where the library is laxer than its documents. Each of these is to become
// false, and then to go.
const (
	// An import between nodes that is given up while it dials says that the node
	// does not answer.
	laxDial = true

	// A redirection that is ended in the middle of a word leaves what had arrived of
	// it at the target, which EndRedir does not count.
	laxWords = true
)
