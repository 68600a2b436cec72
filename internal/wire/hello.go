package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// Magic begins every hello. A TLS record begins with 0x16, so one port tells the two apart by the
// first byte.
const Magic = "VMMC"

// The range of versions that this build speaks. In version 1 the checksums of headers did not begin
// with the frames' numbers, see [Header.Put]; version 2 had frames of 256 KiB at most.
const (
	MinVersion = 3
	MaxVersion = 3
)

// Capabilities: in a hello the importer requests them, in an answer the exporter states which hold.
const (
	Checked uint64 = 1 << iota // each payload has a checksum
	Resumes                    // the link survives its connection
	// TLS begins behind the importer's proof. Requested and agreed on elsewhere, and only stated
	// here.
	Encrypted
)

// Sizes of the hello's parts, in bytes.
const (
	HelloSize     = 80
	ChallengeSize = 48
	ProofSize     = 32
	AnswerSize    = 72
	KeySize       = 32
)

// Status is the result of a hello; 0 is success.
type Status uint16

// Why a hello was refused.
const (
	OK Status = iota
	RefusedVersion
	RefusedLink
	RefusedProof
	RefusedAttempt
	RefusedGone
	RefusedClear
	RefusedLater
)

var statusText = [...]string{
	OK:             "accepted",
	RefusedVersion: "no common protocol version",
	RefusedLink:    "the exporter's node knows no such link, or knows it no more: import again",
	RefusedProof:   "wrong proof: the link's key does not match",
	RefusedAttempt: "replayed hello: this attempt's number was used before",
	RefusedGone:    "the exporter has left, or has given the link up: import again if it lives",
	RefusedClear:   "one side takes the link for encrypted and the other does not",
	RefusedLater:   "the node's daemon was restarted, and not all of its processes have come back yet: try again",
}

func (s Status) Error() string {
	if int(s) < len(statusText) {
		return statusText[s]
	}
	return fmt.Sprintf("refused for a reason unknown to this version (%d)", uint16(s))
}

// ErrHello is the error of every malformed part of a hello.
var ErrHello = errors.New("malformed hello")

// Nonce makes both sides' proofs fresh.
type Nonce [32]byte

// NewNonce draws a nonce.
func NewNonce() (n Nonce) {
	_, _ = rand.Read(n[:]) // never fails since Go 1.24
	return n
}

// Hello is what the importer sends first.
type Hello struct {
	MinVersion, MaxVersion uint16
	Capabilities           uint64
	Link                   uint64
	Attempt                uint64 // greater than any this importer ever sent on the link
	Applied                uint64 // last reply applied, for resuming
	Notices                uint32 // of imports that were revoked, in all; for resuming
	Nonce                  Nonce
}

// Encode returns the hello's bytes.
func (h *Hello) Encode() []byte {
	b := make([]byte, HelloSize)
	le := binary.LittleEndian
	copy(b, Magic)
	le.PutUint16(b[4:], h.MinVersion)
	le.PutUint16(b[6:], h.MaxVersion)
	le.PutUint64(b[8:], h.Capabilities)
	le.PutUint64(b[16:], h.Link)
	le.PutUint64(b[24:], h.Attempt)
	le.PutUint64(b[32:], h.Applied)
	le.PutUint32(b[40:], h.Notices)
	copy(b[48:], h.Nonce[:])
	return b
}

// ParseHello reads a hello.
func ParseHello(b []byte) (Hello, error) {
	if len(b) != HelloSize || string(b[:4]) != Magic {
		return Hello{}, fmt.Errorf("%w: %d bytes, or no %q at its start", ErrHello, len(b), Magic)
	}
	le := binary.LittleEndian
	h := Hello{
		MinVersion: le.Uint16(b[4:]), MaxVersion: le.Uint16(b[6:]), Capabilities: le.Uint64(b[8:]),
		Link: le.Uint64(b[16:]), Attempt: le.Uint64(b[24:]), Applied: le.Uint64(b[32:]), Notices: le.Uint32(b[40:]),
	}
	copy(h.Nonce[:], b[48:])
	if le.Uint32(b[44:]) != 0 { // for later versions
		return Hello{}, fmt.Errorf("%w: bytes that are not used yet are set", ErrHello)
	}
	if h.MinVersion > h.MaxVersion {
		return Hello{}, fmt.Errorf("%w: versions %d to %d", ErrHello, h.MinVersion, h.MaxVersion)
	}
	return h, nil
}

// Version is the highest version that both sides speak.
func (h *Hello) Version() (uint16, error) {
	v := min(h.MaxVersion, MaxVersion)
	if v < h.MinVersion || v < MinVersion {
		return 0, fmt.Errorf("%w: peer speaks %d to %d, this node %d to %d",
			RefusedVersion, h.MinVersion, h.MaxVersion, MinVersion, MaxVersion)
	}
	return v, nil
}

// Challenge is the exporter's node's answer to a hello.
type Challenge struct {
	Status       Status
	Version      uint16
	Capabilities uint64
	Nonce        Nonce
}

// Encode returns the challenge's bytes.
func (c *Challenge) Encode() []byte {
	b := make([]byte, ChallengeSize)
	copy(b, Magic)
	binary.LittleEndian.PutUint16(b[4:], uint16(c.Status))
	binary.LittleEndian.PutUint16(b[6:], c.Version)
	binary.LittleEndian.PutUint64(b[8:], c.Capabilities)
	copy(b[16:], c.Nonce[:])
	return b
}

// ParseChallenge reads a challenge. A refusal is returned as its [Status].
func ParseChallenge(b []byte) (Challenge, error) {
	if len(b) != ChallengeSize || string(b[:4]) != Magic {
		return Challenge{}, fmt.Errorf("%w: %d bytes of challenge, or no %q at its start",
			ErrHello, len(b), Magic)
	}
	c := Challenge{
		Status:       Status(binary.LittleEndian.Uint16(b[4:])),
		Version:      binary.LittleEndian.Uint16(b[6:]),
		Capabilities: binary.LittleEndian.Uint64(b[8:]),
	}
	copy(c.Nonce[:], b[16:])
	if c.Status != OK {
		return c, c.Status
	}
	return c, nil
}

// Answer is the exporting process's last word before frames begin.
type Answer struct {
	Status  Status
	Proof   [ProofSize]byte
	Applied uint64 // last message applied
	Partial uint64 // bytes of the next one applied
	Credits uint64 // total of notification credits returned

	Capabilities uint64 // that the link has
}

// Encode returns the answer's bytes.
func (a *Answer) Encode() []byte {
	b := make([]byte, AnswerSize)
	copy(b, Magic)
	le := binary.LittleEndian
	le.PutUint16(b[4:], uint16(a.Status))
	copy(b[8:], a.Proof[:])
	le.PutUint64(b[40:], a.Applied)
	le.PutUint64(b[48:], a.Partial)
	le.PutUint64(b[56:], a.Credits)
	le.PutUint64(b[64:], a.Capabilities)
	return b
}

// ParseAnswer reads an answer. A refusal is returned as its [Status].
func ParseAnswer(b []byte) (Answer, error) {
	if len(b) != AnswerSize || string(b[:4]) != Magic {
		return Answer{}, fmt.Errorf("%w: %d bytes of answer, or no %q at its start",
			ErrHello, len(b), Magic)
	}
	le := binary.LittleEndian
	a := Answer{Status: Status(le.Uint16(b[4:])), Applied: le.Uint64(b[40:]), Partial: le.Uint64(b[48:]), Credits: le.Uint64(b[56:]), Capabilities: le.Uint64(b[64:])}
	copy(a.Proof[:], b[8:])
	if a.Status != OK {
		return a, a.Status
	}
	return a, nil
}

// Side is the side that proves. Each side's proof differs, so neither can be sent back.
type Side string

// The two sides of a link.
const (
	Importer Side = "vmmc link importer"
	Exporter Side = "vmmc link exporter"
)

// Prove computes a side's proof that it holds the link's key, over both sides' fresh nonces and
// everything else exchanged. binding is a secret of the encrypted connection that carries the
// proof, or nil: with it no process can move the proof to another connection.
func Prove(key []byte, s Side, hello, challenge, binding []byte) (p [ProofSize]byte) {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(s))
	m.Write(hello)
	m.Write(challenge)
	m.Write(binding)
	copy(p[:], m.Sum(nil))
	return p
}

// Verify reports whether a proof is right, in constant time.
func Verify(key []byte, s Side, hello, challenge, binding []byte, proof []byte) bool {
	want := Prove(key, s, hello, challenge, binding)
	return hmac.Equal(want[:], proof)
}
