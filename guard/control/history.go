package control

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/safetext"
)

// parseHistoryQuery parses n, since and from; a missing parameter does not restrict the query.
func parseHistoryQuery(r *http.Request) (q api.HistoryQuery, err error) {
	if v := r.FormValue("n"); v != "" {
		if q.N, err = strconv.Atoi(v); err != nil {
			return q, fmt.Errorf("n = %q: not a number", v)
		}
	}
	if v := r.FormValue("since"); v != "" {
		if q.Since, err = time.Parse(time.RFC3339Nano, v); err != nil {
			return q, fmt.Errorf("since = %q: want a time, as 2006-01-02T15:04:05Z", v)
		}
	}
	if v := r.FormValue("from"); v != "" {
		if q.From, err = strconv.ParseUint(v, 10, 64); err != nil {
			return q, fmt.Errorf("from = %q: not the number of a pass", v)
		}
	}
	return q, nil
}

// historyValues encodes a query for parseHistoryQuery.
func historyValues(q api.HistoryQuery) url.Values {
	v := url.Values{"n": {strconv.Itoa(q.N)}}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if q.From > 0 {
		v.Set("from", strconv.FormatUint(q.From, 10))
	}
	return v
}

// replyHistory writes the passes one by one, because all of them at once would take megabytes for each
// client. The note follows them.
func replyHistory(w http.ResponseWriter, query func(emit func(line []byte) error) (note string, err error)) {
	w.Header().Set("Content-Type", "application/json")
	out := safetext.NewWriter(w)
	sep := `{"apiVersion":"` + api.APIVersion + `","passes":[`
	note, err := query(func(line []byte) error {
		_, err := io.WriteString(out, sep)
		sep = ","
		if err == nil {
			_, err = out.Write(line)
		}
		return err
	})
	if err != nil {
		return // a client that disconnects is not our failure
	}
	end := "]"
	if sep != "," {
		end = sep + end
	}
	if text, err := safetext.JSON(note); err == nil && note != "" {
		end += `,"note":` + string(text)
	}
	_, _ = io.WriteString(out, end+"}\n")
}
