package ask

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vmmc-go/vmmc/internal/code"
)

// textOnly refuses a request with text that is not UTF-8 before it is sent: a message cannot carry
// it, and nodes keep names and directories of sessions as text.
var textOnly = connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if m, is := r.Any().(proto.Message); is && r.Spec().IsClient {
			if err := checkText(m.ProtoReflect()); err != nil {
				return nil, err
			}
		}
		return next(ctx, r)
	}
})

// checkText refuses a message with text that is not UTF-8, and says in which field. A password is
// not told.
func checkText(m protoreflect.Message) (err error) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		each := func(v protoreflect.Value) {
			switch {
			case err != nil:
			case f.Kind() == protoreflect.MessageKind:
				err = checkText(v.Message())
			case f.Kind() == protoreflect.StringKind && !utf8.ValidString(v.String()):
				what := strings.ReplaceAll(string(f.Name()), "_", " ")
				if f.Name() != "password" {
					what += fmt.Sprintf(" %q", v.String())
				}
				err = code.New(code.BadArg, "the %s is not valid UTF-8: choose one that is; only programs, their arguments, directories and variables may be any bytes", what)
			}
		}
		if f.IsList() {
			for i := range v.List().Len() {
				each(v.List().Get(i))
			}
		} else if !f.IsMap() {
			each(v)
		}
		return err == nil
	})
	return err
}
