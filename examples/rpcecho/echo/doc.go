// Package echo is what vrpcgen makes of echo.x.
package echo

//go:generate go run ../../../cmd/vrpcgen -package echo -o echo.go echo.x
