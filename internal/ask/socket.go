package ask

import (
	"bytes"
	"io"
	"net/http"
	"strconv"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// throughSocket carries calls to a node over the socket of this machine's.
type throughSocket struct {
	conn *nodeproto.Conn
	node string
}

// Do makes one call.
func (t *throughSocket) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, nodeproto.MaxControl+1))
	if err != nil {
		return nil, err
	}
	if len(body) > nodeproto.MaxControl {
		return nil, code.New(code.BadArg,
			"the request has more than %d bytes: give the program fewer arguments", nodeproto.MaxControl)
	}
	q := nodeproto.ControlRequest{Node: t.node, Path: r.URL.Path, Body: body, Headers: map[string]string{}}
	for k := range r.Header {
		q.Headers[k] = r.Header.Get(k)
	}
	a, fds, err := nodeproto.Ask[nodeproto.ControlAnswer](r.Context(), t.conn, nodeproto.Control, q, nil)
	foreign.Close(fds...) // an honest daemon sends none
	if err != nil {
		return nil, err
	}
	h := http.Header{}
	for k, v := range a.Headers {
		h.Set(k, v)
	}
	return &http.Response{
		Status: strconv.Itoa(a.Status) + " " + http.StatusText(a.Status), StatusCode: a.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(a.Body)), ContentLength: int64(len(a.Body)), Request: r,
	}, nil
}
