package unix

// Limits are what the kernel allows this process; Unlimited where there is none.
type Limits struct {
	Files     uint64 // descriptors
	Locked    uint64 // bytes locked in memory
	Processes uint64 // of this user
}

// Unlimited is no limit.
const Unlimited = ^uint64(0)
