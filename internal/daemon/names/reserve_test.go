package names

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

func TestReservationStates(t *testing.T) {
	if err := reservationTransitions.Walk(reservationEnded, func(from, to reservationState) reservationState {
		r := &reservation{state: from}
		r.setState(to)
		return r.state
	}); err != nil {
		t.Error(err)
	}
}

func process(pid uint32) nodeproto.ProcessID { return nodeproto.ProcessID{Node: "n", PID: pid} }

// A name that is kept for a process is never another one's.
func TestReserve(t *testing.T) {
	var tab Table
	a, b := owner(1), owner(2)
	for range 2 {
		if err := tab.Reserve(key("x"), process(1)); err != nil {
			t.Fatal(err)
		}
	}
	taken := func() {
		t.Helper()
		_, _, claim := tab.Claim(t.Context(), key("x"), b, of(1))
		_, _, set := tab.Claim(t.Context(), key("x"), b, inSet(1))
		for what, err := range map[string]error{
			"a claim": claim, "a claim in a set": set, "a process that returns": tab.Restore(key("x"), b, of(1)),
			"another reservation": tab.Reserve(key("x"), process(2)),
		} {
			var taken *TakenError
			if !errors.As(err, &taken) || taken.Owner != process(1) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	taken()
	hold(t, &tab, key("x"), a, of(1))
	taken()
	tab.Drop(a)
	taken()
	tab.EndReserved(1)
	taken()
	hold(t, &tab, key("y"), b, of(1))
	if err := tab.Reserve(key("y"), process(1)); !errors.Is(err, code.NameTaken) {
		t.Errorf("a name that another process has: %v", err)
	}
	// A process that came back before its reservation did.
	c := owner(3)
	hold(t, &tab, key("z"), c, of(1))
	if err := tab.Reserve(key("z"), process(3)); err != nil {
		t.Error(err)
	}
	tab.Drop(b)
	tab.Drop(c)
	if tab.DropReservations(key("x").Scope); len(tab.users) != 0 || len(tab.reserved) != 0 {
		t.Errorf("%d users and %d reservations are left", len(tab.users), len(tab.reserved))
	}
	hold(t, &tab, key("x"), owner(4), of(1))
}

// A wait for a name ends with the process that it is kept for, whenever that ends.
func TestWaitForReserved(t *testing.T) {
	var tab Table
	b := owner(2)
	gone := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, code.NoSuchProcess) || !strings.Contains(err.Error(), "process 1 ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	reserve := func() {
		t.Helper()
		if err := tab.Reserve(key("x"), process(1)); err != nil {
			t.Fatal(err)
		}
	}
	reserve()
	tried, waited := make(chan struct{}, 9), make(chan error)
	wait := func() {
		_, err := tab.Wait(t.Context(), b, key("x"), func(*Entry) error {
			tried <- struct{}{}
			return ErrAbsent
		})
		waited <- err
	}
	hold(t, &tab, key("x"), owner(1), of(1))
	go wait()
	<-tried
	<-tried // the second time it is counted as a waiter
	tab.EndReserved(1)
	gone("a wait that has begun", <-waited)
	_, err := tab.Wait(t.Context(), b, key("x"), func(*Entry) error { return ErrAbsent })
	gone("a wait that begins later", err)
	// What is published is found, also if its reservation has ended.
	if e, err := tab.Wait(t.Context(), b, key("x"), admitAll); err != nil || e.Owner.ID.PID != 1 {
		t.Errorf("a name that is published: %v", err)
	}
	reserve() // its supervisor was not reached for a while
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := tab.Wait(ended, b, key("x"), func(*Entry) error { return ErrAbsent }); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait for a process that lives: %v", err)
	}
	// Another name for the pid is another process's.
	if err := tab.Reserve(key("y"), process(1)); err != nil {
		t.Fatal(err)
	}
	gone("a pid that has come round", tab.ReservationEnded(key("x")))
	if err := tab.ReservationEnded(key("y")); err != nil {
		t.Error(err)
	}
	// The end is not lost where the session is deleted before the wait looks again.
	for _, deleted := range []string{"after the end", "before it"} {
		reserve()
		for len(tried) > 0 { // of the wait before
			<-tried
		}
		go wait()
		for range 2 {
			<-tried
		}
		if deleted == "after the end" {
			tab.mu.Lock() // the wait sees both at once
			tab.endReservation(tab.reserved[1])
			tab.drop(key("x").Scope)
			tab.mu.Unlock()
		} else {
			tab.DropReservations(key("x").Scope)
		}
		gone("the session is deleted "+deleted, <-waited)
	}
	if b.waits != 0 {
		t.Errorf("%d waits are left", b.waits)
	}
}

// What a supervisor says of the past changes nothing that is there.
func TestRestoreEnded(t *testing.T) {
	var tab Table
	tab.RestoreEnded(key("x"), process(1))
	if tab.ReservationEnded(key("x")) == nil {
		t.Error("it has not ended")
	}
	if err := tab.Reserve(key("y"), process(1)); err != nil { // the pid has come round
		t.Fatal(err)
	}
	tab.RestoreEnded(key("z"), process(1))
	tab.RestoreEnded(key("y"), process(1))
	if err := tab.ReservationEnded(key("y")); err != nil || !tab.IsReserved(1) {
		t.Errorf("another program's: %v", err)
	}
	hold(t, &tab, key("held"), owner(2), of(1))
	tab.RestoreEnded(key("held"), process(2))
	if err := tab.ReservationEnded(key("held")); err != nil {
		t.Error(err)
	}
	for i := range maxEndedOfUser {
		tab.RestoreEnded(key(fmt.Sprint(i)), process(3))
	}
	if n := len(tab.users[key("").User].ended); n != maxEndedOfUser || tab.ReservationEnded(key("x")) != nil {
		t.Errorf("%d are remembered", n)
	}
}

// Reservations that have ended are forgotten, the oldest first, each user's own.
func TestEndedReservations(t *testing.T) {
	var tab Table
	reserve := func(k Key, pid uint32) {
		t.Helper()
		if err := tab.Reserve(k, process(pid)); err != nil {
			t.Fatal(err)
		}
		tab.EndReserved(pid)
	}
	other := key("x")
	other.User = "other"
	reserve(other, 1)
	for i := range maxEndedOfUser + 10 {
		reserve(key(fmt.Sprint(i)), uint32(i)+2)
	}
	for i, want := range map[int]bool{0: false, 9: false, 10: true, maxEndedOfUser + 9: true} {
		if err := tab.ReservationEnded(key(fmt.Sprint(i))); (err != nil) != want {
			t.Errorf("reservation %d: %v", i, err)
		}
	}
	if tab.ReservationEnded(other) == nil {
		t.Error("another user's was forgotten")
	}
	session := key("10")
	session.Session = "other"
	reserve(session, 1)
	tab.DropReservations(key("").Scope)
	if tab.ReservationEnded(key("12")) != nil || tab.ReservationEnded(session) == nil {
		t.Error("those of one session were to be forgotten")
	}
	tab.DropReservations(session.Scope)
	tab.DropReservations(other.Scope)
	if len(tab.users) != 0 || len(tab.reserved) != 0 {
		t.Errorf("%d users are left", len(tab.users))
	}
}
