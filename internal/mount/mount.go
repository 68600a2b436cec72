package mount

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Order is a share that is to be mounted.
type Order struct {
	Share
	Credentials

	At   string // an empty directory
	UID  uint32 // whose it is to look like, where the server has no such numbers
	GID  uint32
	Mark string // an entry of the environment by which mount(8) is found, NAME=value
}

// secretFD is where mount(8) and its programs find the credentials.
const secretFD = 3

// Mount mounts a share. When ctx ends before that, nothing is mounted, unless the
// error is [ErrStuck]. The credentials are in no file that has a name, in no
// argument and in no environment: they are in memory that mount(8) inherits.
func (o Order) Mount(ctx context.Context) error {
	if err := o.Check(); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, timeout.Mount)
	defer stop()
	options := "rw,nosuid,nodev"
	p := program{name: "mount", env: []string{o.Mark}, hide: o.hide}
	switch {
	case o.Type == "nfs" && o.Credentials != Credentials{}:
		return code.New(code.BadArg,
			"share %s: NFS has no passwords: leave the credentials out", o.Source)
	case o.Type == "nfs":
		options += ",retry=0" // say at once what is wrong
	case o.User == "":
		options += o.owner() + ",guest"
	default:
		f, err := unix.Secret(o.file())
		if err != nil {
			return fmt.Errorf("hand on the share's credentials: %w", err)
		}
		defer f.Close()
		p.secret = f
		options += fmt.Sprintf("%s,credentials=/proc/self/fd/%d", o.owner(), secretFD)
	}
	p.args = []string{"-t", o.Type, "-o", options, "--", o.Source, o.At}
	if err := p.run(ctx); err != nil {
		return fmt.Errorf("mount share %s: %w", o.Source, err)
	}
	if is, err := Mounted(o.At); err != nil || !is {
		return code.New(code.BadConfig,
			"mount share %s: mount(8) says that it is done, and nothing is at %s (%v)", o.Source, o.At, err)
	}
	return nil
}

// owner gives all files of a share without owners to the session's user, and to no other
// user: they are read with that user's credentials.
func (o Order) owner() string {
	return fmt.Sprintf(",uid=%d,forceuid,gid=%d,forcegid,file_mode=0700,dir_mode=0700", o.UID, o.GID)
}

// layers bounds how many mounts at one path are taken away.
const layers = 16

// Unmount unmounts the file system at a path. Where umount(8) cannot, because a process
// uses it or the server does not answer, Unmount detaches it, and the kernel unmounts it
// when no process uses it any more. busy then says why.
func Unmount(ctx context.Context, at string) (busy error, err error) {
	for range layers {
		is, err := Mounted(at)
		if err != nil || !is {
			return busy, err
		}
		bounded, stop := context.WithTimeout(ctx, timeout.Unmount)
		failed := program{name: "umount", args: []string{"--", at}}.run(bounded)
		stop()
		if failed == nil {
			continue
		}
		busy = failed
		if is, _ := Mounted(at); is {
			if err := unix.Detach(at); err != nil {
				return busy, code.New(code.BadConfig, "unmount %s: %v; %v", at, failed, err)
			}
		}
	}
	return busy, code.New(code.BadConfig, "unmount %s: something is mounted there again and again", at)
}
