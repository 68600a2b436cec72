package vrpc

import (
	"context"

	"github.com/vmmc-go/vmmc/xdr"
)

// null is procedure 0 of a service that has none.
type null struct{ xdr.Void }

// Do does nothing.
func (null) Do(context.Context) error { return nil }
