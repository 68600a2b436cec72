module github.com/vmmc-go/vmmc

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	github.com/google/go-cmp v0.7.0
	golang.org/x/sys v0.49.0
	google.golang.org/protobuf v1.36.12
)
