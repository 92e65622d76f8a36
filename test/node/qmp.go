package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// qmp is qemu's control connection (https://www.qemu.org/docs/master/interop/qmp-spec.html).
type qmp struct {
	conn  net.Conn
	lines *bufio.Reader
}

// newQMP reads the greeting and enters command mode.
func newQMP(conn net.Conn) (*qmp, error) {
	q := &qmp{conn: conn, lines: bufio.NewReader(conn)}
	if _, err := q.lines.ReadBytes('\n'); err != nil {
		return nil, fmt.Errorf("greet qemu: %w", err)
	}
	return q, q.do("qmp_capabilities", nil, nil)
}

// do runs a command and skips events in between.
func (q *qmp) do(command string, arguments map[string]any, into any) error {
	order := map[string]any{"execute": command}
	if arguments != nil {
		order["arguments"] = arguments
	}
	if err := q.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if err := json.NewEncoder(q.conn).Encode(order); err != nil {
		return fmt.Errorf("tell qemu %s: %w", command, err)
	}
	for {
		line, err := q.lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("hear of qemu's %s: %w", command, err)
		}
		var answer struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := json.Unmarshal(line, &answer); err != nil {
			return fmt.Errorf("read qemu's answer to %s: %w", command, err)
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("qemu %s: %s", command, answer.Error.Desc)
		case answer.Return != nil && into != nil:
			return json.Unmarshal(answer.Return, into)
		case answer.Return != nil:
			return nil
		}
	}
}

// freeze stops the machine and writes its state to a file.
func (q *qmp) freeze(path string) error {
	if err := q.do("stop", nil, nil); err != nil {
		return err
	}
	if err := q.do("migrate-set-parameters", map[string]any{"max-bandwidth": int64(1) << 40}, nil); err != nil {
		return err
	}
	if err := q.do("migrate", map[string]any{"uri": "exec:cat > '" + path + "'"}, nil); err != nil {
		return err
	}
	return q.await("query-migrate", "completed", "failed")
}

// thaw waits until qemu has loaded the state, and resumes the machine.
func (q *qmp) thaw() error {
	if err := q.await("query-status", "paused", "guest-panicked"); err != nil {
		return err
	}
	return q.do("cont", nil, nil)
}

// await polls until the status is good or bad.
func (q *qmp) await(query, good, bad string) error {
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		var now struct{ Status string }
		if err := q.do(query, nil, &now); err != nil {
			return err
		}
		switch now.Status {
		case good:
			return nil
		case bad:
			return fmt.Errorf("qemu %s: %s", query, bad)
		}
	}
	return fmt.Errorf("qemu %s: not %s after a minute", query, good)
}
