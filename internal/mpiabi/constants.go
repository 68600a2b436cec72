package mpiabi

// Values of the standard's ABI.
const (
	procNull  = -3
	undefined = -32766

	inPlace         = 1
	bufferAutomatic = 2

	threadSingle     = 0
	threadFunneled   = 1024
	threadSerialized = 2048
	threadMultiple   = 4096
)

// Handle is a handle of C: below firstDynamic one that the standard has named, and otherwise one of
// the handle table.
type Handle uint64

// The handles that the standard has named.
const (
	commNull  Handle = 0x100
	commWorld Handle = 0x101
	commSelf  Handle = 0x102

	groupNull  Handle = 0x108
	groupEmpty Handle = 0x109

	infoNull Handle = 0x130
	infoEnv  Handle = 0x131

	errhandlerNull Handle = 0x140
	errorsAreFatal Handle = 0x141
	errorsAbort    Handle = 0x142
	errorsReturn   Handle = 0x143

	requestNull Handle = 0x180

	messageNull   Handle = 0x128
	messageNoProc Handle = 0x129

	datatypeNull Handle = 0x200

	firstDynamic Handle = 0x1000
)

// errToolNotSupported is MPI_T_ERR_NOT_SUPPORTED: no call of the tool information interface is there.
const errToolNotSupported int32 = 1004

// Error classes. A class is also the code of an error.
const (
	errSuccess   int32 = 0
	errBuffer    int32 = 1
	errCount     int32 = 2
	errType      int32 = 3
	errTag       int32 = 4
	errComm      int32 = 5
	errRank      int32 = 6
	errRequest   int32 = 7
	errRoot      int32 = 8
	errGroup     int32 = 9
	errOp        int32 = 10
	errTopology  int32 = 11
	errDims      int32 = 12
	errArg       int32 = 13
	errTruncate  int32 = 15
	errOther     int32 = 16
	errIntern    int32 = 17
	errPending   int32 = 18
	errInStatus  int32 = 19
	errAccess    int32 = 20
	errAmode     int32 = 21
	errBadFile   int32 = 23
	errExists    int32 = 28
	errFileInUse int32 = 29
	errFile      int32 = 30
	errInfoKey   int32 = 31
	errInfoNoKey int32 = 32
	errInfoValue int32 = 33
	errInfo      int32 = 34
	errIO        int32 = 35
	errKeyval    int32 = 36
	errLockType  int32 = 37
	errName      int32 = 38
	errNotSame   int32 = 40
	errNoSpace   int32 = 41
	errNoFile    int32 = 42
	errPort      int32 = 43
	errQuota     int32 = 44
	errReadOnly  int32 = 45
	errRMARange  int32 = 48
	errRMAShared int32 = 49
	errRMASync   int32 = 50
	errService   int32 = 51
	errSpawn     int32 = 53
	errUnsupp    int32 = 55
	errWin       int32 = 56
	errAborted   int32 = 58
	errSession   int32 = 60
	errBase      int32 = 24
	errDisp      int32 = 26
	errNoMem     int32 = 39
	errSize      int32 = 52
	errDatarep   int32 = 54

	errConversion int32 = 25
	errHandler    int32 = 61
	errABI        int32 = 62

	lastCode int32 = 16383 // MPI_ERR_LASTCODE
)
