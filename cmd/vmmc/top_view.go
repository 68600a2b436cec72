package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/vmmc-go/vmmc/internal/ask"
)

// topModel is what "vmmc top" shows.
type topModel struct {
	ctx   context.Context //nolint:containedctx // the command's, for as long as the model lives
	a     *ask.Cluster
	every time.Duration
	by    *order
	back  bool // the order is reversed

	rates  rates
	rows   []linkRate
	err    error
	looked bool
	width  int
	height int
}

// linksMsg are what a look has found.
type linksMsg struct {
	list []ask.Link
	err  error
}

type refreshMsg struct{}

// Init begins with a look.
func (m *topModel) Init() tea.Cmd { return m.readOnce }

func (m *topModel) readOnce() tea.Msg {
	list, errs := readLinks(m.ctx, m.a)
	return linksMsg{list, errors.Join(errs...)}
}

// Update takes what has happened.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case refreshMsg:
		return m, m.readOnce
	case linksMsg:
		m.rows, m.err, m.looked = m.rates.update(msg.list), msg.err, true
		m.by.sort(m.rows, m.back)
		return m, tea.Tick(m.every, func(time.Time) tea.Msg { return refreshMsg{} })
	case tea.KeyPressMsg:
		switch key := msg.String(); key {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		case "r":
			m.back = !m.back
		default:
			if o := orderNamed(key); o != nil {
				m.by, m.back = o, false
			}
		}
		m.by.sort(m.rows, m.back)
	}
	return m, nil
}

var (
	titleStyle  = lipgloss.NewStyle().Bold(true)
	headerStyle = lipgloss.NewStyle().Reverse(true)
)

// View draws the screen, of which every line fits.
func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "vmmc top"
	return v
}

func (m *topModel) lines() []string {
	if m.width < 1 || m.height < 1 {
		return nil
	}
	cut := lipgloss.NewStyle().MaxWidth(m.width).Inline(true)
	lines := []string{""} // the title comes last: it says how many rows there is room for
	if m.err != nil {
		lines = append(lines, cut.Render(escaped(strings.Join(strings.Fields(m.err.Error()), " "))))
	}
	room := m.height - len(lines) - 1 // the last line is for keys
	table := layout(m.rows, m.by, m.back, m.width)
	for i, l := range table[:max(0, min(room, len(table)))] {
		if i == 0 {
			l = cut.Inherit(headerStyle).Render(l + strings.Repeat(" ", max(0, m.width-lipgloss.Width(l))))
		} else {
			l = cut.Render(l)
		}
		lines = append(lines, l)
	}
	if m.looked && m.err == nil && len(m.rows) == 0 && room > 1 {
		lines = append(lines, cut.Render("There are no links that you may see."))
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines[0] = cut.Inherit(titleStyle).Render(m.title(max(0, room-1)))
	if m.height > 2 {
		lines = append(lines, cut.Render(m.keys()))
	}
	return lines[:min(len(lines), m.height)]
}

// title is the first line; room is how many ends of links can be shown.
func (m *topModel) title(room int) string {
	if !m.looked {
		return "vmmc top: looking"
	}
	var total linkRate
	for _, r := range m.rows {
		if r.Role == "imports" { // the other end may have counted the same
			total.MessageRate += r.MessageRate
			total.ByteRate += r.ByteRate
		}
	}
	count := "vmmc top: 1 link"
	if n := linkCount(m.rows); n != 1 {
		count = fmt.Sprintf("vmmc top: %d links", n)
	}
	if len(m.rows) > room {
		count += fmt.Sprintf(" (%d of %d ends)", room, len(m.rows))
	}
	order := "by " + m.by.name
	if m.back {
		order += " reversed"
	}
	return fill([]string{count, perSecond(total.MessageRate) + " msg/s", sized(uint64(total.ByteRate)) + "/s", order}, ", ", m.width)
}

// linkCount is how many links the rows are ends of. Both ends of a link are there where
// the user may see both.
func linkCount(rows []linkRate) int {
	type ends struct {
		importer, exporter string
		from, to           uint32
	}
	imports, exports := map[ends]int{}, map[ends]int{}
	for _, r := range rows {
		if r.Role == "imports" {
			imports[ends{r.Node, r.PeerNode, r.PID, r.PeerPID}]++
		} else {
			exports[ends{r.PeerNode, r.Node, r.PeerPID, r.PID}]++
		}
	}
	n := 0
	for e, c := range imports {
		n += max(c, exports[e])
		delete(exports, e)
	}
	for _, c := range exports {
		n += c
	}
	return n
}

// keys is the last line: as much of each as there is room for.
func (m *topModel) keys() string {
	for _, l := range []string{
		"q quit  r reverse  sort by: b bytes  m messages  n notes  g gets  a atomics  i idle  p process",
		"q quit  r reverse  sort: bytes messages notes gets atomics idle process",
	} {
		if len(l) <= m.width {
			return l
		}
	}
	return fill([]string{"q quit", "r reverse", "b m n g a i p sort"}, "  ", m.width)
}
