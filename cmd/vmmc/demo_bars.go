package main

import (
	"os"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bars shows a path's progress while the file moves along it.
func bars(size int64) (progress func(path string, done int64), end func()) {
	p := mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(60))
	open := map[string]*mpb.Bar{}
	progress = func(path string, done int64) {
		b := open[path]
		if b == nil {
			b = p.AddBar(size,
				mpb.PrependDecorators(decor.Name(path, decor.WC{W: 7, C: decor.DindentRight})),
				mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f"), decor.Percentage(decor.WC{W: 6})))
			open[path] = b
		}
		b.SetCurrent(done)
	}
	end = func() {
		for _, b := range open {
			b.Abort(false) // one that is complete stays so
		}
		p.Wait()
	}
	return progress, end
}
