package model_test

// Where the library is laxer than its documents. Each of these is to become
// false, and then to go.
const (
	// Fence by an import that is mapped does not look at the export's state: it may
	// succeed after the end, before the news of that.
	laxFence = true

	// A notification that is still in the ring when its mapped import is closed is
	// not run.
	laxNotes = true

	// When a stream's import is closed after its export was, but before the news
	// of that, a request of a send that went nowhere says that it arrived.
	laxRequests = true

	// An asynchronous get on the stream that finds its import closed says that the
	// exporter has closed the export.
	laxGets = true

	// Export.Close does not find blocked notifications of an import that is closed.
	laxPending = true
)
