package modelstub

import (
	"encoding/json"
	"net/http"
)

// anthropic writes the Messages API.
type anthropic struct{}

func (anthropic) read(asked *Request, body json.RawMessage) bool {
	var in struct {
		Model  string
		Stream bool
		Tools  []struct{ Name string }

		Messages []struct {
			Content json.RawMessage
		}
	}
	if json.Unmarshal(body, &in) != nil {
		return false
	}
	asked.Model, asked.Stream = in.Model, in.Stream
	for _, tool := range in.Tools {
		asked.Tools = append(asked.Tools, tool.Name)
	}
	for _, message := range in.Messages {
		var blocks []struct {
			Type    string
			ID      string `json:"tool_use_id"`
			Content json.RawMessage
		}
		if json.Unmarshal(message.Content, &blocks) != nil {
			continue // a plain string
		}
		for _, block := range blocks {
			if block.Type == "tool_result" {
				asked.Results = append(asked.Results, Result{ID: block.ID, Text: text(block.Content)})
			}
		}
	}
	return true
}

func (anthropic) message(says reply, content []obj, reason any) obj {
	return obj{
		"id": "msg_" + says.id, "type": "message", "role": "assistant", "model": says.model,
		"content": content, "stop_reason": reason, "stop_sequence": nil,
		"usage": obj{"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
	}
}

func (a anthropic) head(out *events, says reply) {
	out.send("message_start", obj{"type": "message_start", "message": a.message(says, []obj{}, nil)})
}

func (a anthropic) tell(out *events, says reply, parts []string) {
	index := 0
	if says.text != "" {
		a.block(out, index, obj{"type": "text", "text": ""}, func(delta func(obj)) {
			for _, part := range parts {
				delta(obj{"type": "text_delta", "text": part})
			}
		})
		index++
	}
	if says.call != nil {
		args := marshal(says.call.Args)
		start := obj{"type": "tool_use", "id": says.id, "name": says.call.Name, "input": obj{}}
		a.block(out, index, start, func(delta func(obj)) {
			delta(obj{"type": "input_json_delta", "partial_json": args})
		})
	}
	out.send("message_delta", obj{
		"type": "message_delta", "delta": obj{"stop_reason": a.reason(says), "stop_sequence": nil},
		"usage": obj{"output_tokens": 5},
	})
	out.send("message_stop", obj{"type": "message_stop"})
}

func (anthropic) block(out *events, index int, start obj, fill func(delta func(obj))) {
	out.send("content_block_start", obj{"type": "content_block_start", "index": index, "content_block": start})
	fill(func(delta obj) {
		out.send("content_block_delta", obj{"type": "content_block_delta", "index": index, "delta": delta})
	})
	out.send("content_block_stop", obj{"type": "content_block_stop", "index": index})
}

func (anthropic) reason(says reply) string {
	if says.call != nil {
		return "tool_use"
	}
	return "end_turn"
}

func (a anthropic) whole(says reply) any {
	content := []obj{}
	if says.text != "" {
		content = append(content, obj{"type": "text", "text": says.text})
	}
	if says.call != nil {
		content = append(content, obj{"type": "tool_use", "id": says.id, "name": says.call.Name, "input": says.call.Args})
	}
	return a.message(says, content, a.reason(says))
}

func (anthropic) failure(f Fail) any {
	kind := f.Kind
	if kind == "" {
		kind = map[int]string{
			400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
			429: "rate_limit_error", 529: "overloaded_error",
		}[f.Status]
	}
	if kind == "" {
		kind = "api_error"
	}
	return obj{"type": "error", "error": obj{"type": kind, "message": f.Message}}
}

func (anthropic) count(w http.ResponseWriter) {
	writeJSON(w, http.StatusOK, obj{"input_tokens": 10})
}

// marshal is JSON as a string, for APIs that nest it.
func marshal(value any) string {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // our own value: a fault in the script
	}
	return string(body)
}
