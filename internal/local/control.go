package local

// Control goes from a tool to its daemon: ControlRequest -> ControlAnswer. It is
// a call of the daemon's service for sessions, here or on another node, as the
// user that has the tool's connection. It needs no registration.
const Control Method = 33

// MaxControl bounds the body of a call and of its answer, so that it fits into a
// packet.
const MaxControl = 44 << 10

// ControlRequest is the call.
type ControlRequest struct {
	Node    string            // "": this one
	Path    string            // of the procedure
	Headers map[string]string // those that say what the body is
	Body    []byte
}

// ControlAnswer is what came of it.
type ControlAnswer struct {
	Status  int
	Headers map[string]string
	Body    []byte
}
