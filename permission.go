package vmmc

import "github.com/vmmc-go/vmmc/internal/local"

// A Permission says who may import an export: whoever each list that is not
// empty names. What an importer is, its own node vouches for.
//
// A session belongs to one user. Sessions alone names sessions of the
// exporter's own user; those of others take Users beside it. "*" in Users or
// Sessions stands for all of them, and "" in Sessions for being outside of
// sessions. A Permission without Users, Sessions and Processes lets in only the
// exporter's own user and session, so that Nodes alone narrows that; the zero
// Permission is what holds without [Permit].
type Permission struct {
	Users     []string    // names of users, as the importer's node has them (a number where there is no name)
	Sessions  []string    // as in [WithSession]
	Nodes     []NodeID    // that the importer is on
	Processes []ProcessID // of whichever user and session; a process that ends leaves its number unused for long
}

// Permit lets in whomever any of perms matches, and nobody else: not the
// exporter's own session nor the exporter itself, if none matches them. Several
// Permit options add up. Without any, processes of the same user and session
// may import, and outside of sessions those of the same user outside of
// sessions.
//
// The exporter's node checks it when somebody imports, and refuses at once with
// [ErrNoRights]. Imports that were made stay until they or the export are
// closed.
//
// Who is not of the exporter's user and session can wait for a buffer that is
// not exported yet only while some other export of the process lets it in, in
// at most 64 imports at a time from one process ([ErrNoMem]). Without that it is
// refused at once, and cannot tell whether there is such a buffer. So tell
// importers of other users or sessions when the first buffer for them is
// exported.
//
// Export fails with [ErrBadArg], before anything is done, if perms is empty,
// has more than 256 entries (permissions and what their lists hold) or 8192
// bytes of names, or names the zero [NodeID]. Permit is the manual's vmmc_perm_t,
// which it has not in use yet.
func Permit(perms ...Permission) ExportOption {
	ps := make([]local.Permission, 0, len(perms))
	for _, p := range perms {
		l := local.Permission{Users: append([]string(nil), p.Users...), Sessions: append([]string(nil), p.Sessions...)}
		for _, n := range p.Nodes {
			l.Nodes = append(l.Nodes, n.name)
		}
		for _, id := range p.Processes {
			l.Processes = append(l.Processes, local.Address{Node: id.Node.name, PID: uint32(id.PID)})
		}
		ps = append(ps, l)
	}
	return func(o *exportOptions) { o.permit = append(o.permit, ps...); o.permits = true }
}
