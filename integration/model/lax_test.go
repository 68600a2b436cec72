package model_test

// Where the library is laxer than its documents. It is to become false, and then
// to go.
const (
	// When a stream's import is closed after its export was, but before the news
	// of that, a request of a send that went nowhere says that it arrived.
	laxRequests = true
)
