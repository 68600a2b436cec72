package local

// What a program finds in its environment, beside the socket ([Env]).
const (
	SessionEnv = "VMMCSESSION" // the session that it joins
	HostsEnv   = "VMMCHOSTS"   // the nodes of its session, see [vmmc.Process.SessionHosts]
	TokenEnv   = "VMMC_SPAWN"  // by which its node knows a program that it started
)
