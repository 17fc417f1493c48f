package modelstub

import (
	"encoding/json"
	"maps"
	"net/http"
)

// responses writes OpenAI's Responses API.
type responses struct{}

func (responses) read(asked *Request, body json.RawMessage) bool {
	var in struct {
		Model  string
		Stream bool
		Tools  []struct{ Type, Name string }
		Input  json.RawMessage
	}
	if json.Unmarshal(body, &in) != nil {
		return false
	}
	asked.Model, asked.Stream = in.Model, in.Stream
	for _, tool := range in.Tools {
		name := tool.Name
		if name == "" {
			name = tool.Type // built-in tools have only a type
		}
		asked.Tools = append(asked.Tools, name)
	}
	var items []struct {
		Type   string
		CallID string `json:"call_id"`
		Output json.RawMessage
	}
	if json.Unmarshal(in.Input, &items) != nil {
		return true // the input is one string
	}
	for _, item := range items {
		if item.Type == "function_call_output" || item.Type == "custom_tool_call_output" {
			asked.Results = append(asked.Results, Result{ID: item.CallID, Text: text(item.Output)})
		}
	}
	return true
}

func (responses) response(says reply, status string, output []obj) obj {
	return obj{
		"id": "resp_" + says.id, "object": "response", "created_at": 0, "status": status,
		"model": says.model, "output": output, "error": nil,
		"usage": obj{
			"input_tokens": 10, "input_tokens_details": obj{"cached_tokens": 0},
			"output_tokens": 5, "output_tokens_details": obj{"reasoning_tokens": 0}, "total_tokens": 15,
		},
	}
}

func (r responses) event(out *events, name string, fields obj) {
	fields["type"], fields["sequence_number"] = name, out.n
	out.send(name, fields)
}

func (r responses) head(out *events, says reply) {
	r.event(out, "response.created", obj{"response": r.response(says, "in_progress", []obj{})})
}

func (r responses) tell(out *events, says reply, parts []string) {
	items := r.items(says)
	for index, item := range items {
		r.event(out, "response.output_item.added", obj{"output_index": index, "item": r.opened(item)})
		if item["type"] == "message" {
			r.message(out, index, item["id"], says.text, parts)
		} else {
			r.event(out, "response.function_call_arguments.delta", obj{"item_id": item["id"], "output_index": index, "delta": item["arguments"]})
			r.event(out, "response.function_call_arguments.done", obj{"item_id": item["id"], "output_index": index, "arguments": item["arguments"]})
		}
		r.event(out, "response.output_item.done", obj{"output_index": index, "item": item})
	}
	r.event(out, "response.completed", obj{"response": r.response(says, "completed", items)})
}

func (r responses) message(out *events, index int, id any, whole string, parts []string) {
	at := func(more obj) obj {
		more["item_id"], more["output_index"], more["content_index"] = id, index, 0
		return more
	}
	r.event(out, "response.content_part.added", at(obj{"part": obj{"type": "output_text", "text": "", "annotations": []obj{}}}))
	for _, part := range parts {
		r.event(out, "response.output_text.delta", at(obj{"delta": part}))
	}
	r.event(out, "response.output_text.done", at(obj{"text": whole}))
	r.event(out, "response.content_part.done", at(obj{"part": obj{"type": "output_text", "text": whole, "annotations": []obj{}}}))
}

// items are the finished output items of an answer.
func (responses) items(says reply) []obj {
	items := []obj{}
	if says.text != "" {
		items = append(items, obj{
			"type": "message", "id": "msg_" + says.id, "role": "assistant", "status": "completed",
			"content": []obj{{"type": "output_text", "text": says.text, "annotations": []obj{}}},
		})
	}
	if says.call != nil {
		call := obj{
			"type": "function_call", "id": "fc_" + says.id, "call_id": says.id, "status": "completed",
			"name": says.call.Name, "arguments": marshal(says.call.Args),
		}
		if says.call.Namespace != "" {
			call["namespace"] = says.call.Namespace
		}
		items = append(items, call)
	}
	return items
}

// opened is an item as it looks before its content has come.
func (responses) opened(item obj) obj {
	open := obj{}
	for k, v := range item {
		open[k] = v
	}
	open["status"] = "in_progress"
	if item["type"] == "message" {
		open["content"] = []obj{}
	} else {
		open["arguments"] = ""
	}
	return open
}

func (r responses) whole(says reply) any {
	return r.response(says, "completed", r.items(says))
}

func (responses) failure(f Fail) any { return openAIFailure(f) }

func (responses) count(w http.ResponseWriter) { http.Error(w, "no such call", http.StatusNotFound) }

// openAIFailure is the error body both OpenAI protocols share.
func openAIFailure(f Fail) any {
	kind := f.Kind
	if kind == "" {
		kind = map[int]string{
			400: "invalid_request_error", 401: "invalid_request_error", 429: "rate_limit_exceeded",
		}[f.Status]
	}
	if kind == "" {
		kind = "server_error"
	}
	err := obj{"message": f.Message, "type": kind, "param": nil, "code": kind}
	maps.Copy(err, f.More)
	return obj{"error": err}
}

// chat writes OpenAI's Chat Completions API.
type chat struct{}

func (chat) read(asked *Request, body json.RawMessage) bool {
	var in struct {
		Model  string
		Stream bool
		Tools  []struct {
			Function struct{ Name string }
		}
		Messages []struct {
			Role    string
			ID      string `json:"tool_call_id"`
			Content json.RawMessage
		}
	}
	if json.Unmarshal(body, &in) != nil {
		return false
	}
	asked.Model, asked.Stream = in.Model, in.Stream
	for _, tool := range in.Tools {
		asked.Tools = append(asked.Tools, tool.Function.Name)
	}
	for _, message := range in.Messages {
		if message.Role == "tool" {
			asked.Results = append(asked.Results, Result{ID: message.ID, Text: text(message.Content)})
		}
	}
	return true
}

func (chat) usage() obj {
	return obj{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
}

func (chat) chunk(out *events, says reply, delta obj, finish any) {
	out.send("", obj{
		"id": "chatcmpl-" + says.id, "object": "chat.completion.chunk", "created": 0, "model": says.model,
		"choices": []obj{{"index": 0, "delta": delta, "finish_reason": finish}},
	})
}

func (c chat) head(out *events, says reply) {
	c.chunk(out, says, obj{"role": "assistant", "content": ""}, nil)
}

func (c chat) tell(out *events, says reply, parts []string) {
	for _, part := range parts {
		c.chunk(out, says, obj{"content": part}, nil)
	}
	if says.call != nil {
		call := c.calls(says)[0]
		call["index"] = 0
		c.chunk(out, says, obj{"tool_calls": []obj{call}}, nil)
	}
	c.chunk(out, says, obj{}, c.reason(says))
	out.send("", obj{
		"id": "chatcmpl-" + says.id, "object": "chat.completion.chunk", "created": 0, "model": says.model,
		"choices": []obj{}, "usage": c.usage(),
	})
	out.raw("[DONE]")
}

func (chat) calls(says reply) []obj {
	return []obj{{
		"id": says.id, "type": "function",
		"function": obj{"name": says.call.Name, "arguments": marshal(says.call.Args)},
	}}
}

func (chat) reason(says reply) string {
	if says.call != nil {
		return "tool_calls"
	}
	return "stop"
}

func (c chat) whole(says reply) any {
	message := obj{"role": "assistant", "content": says.text}
	if says.call != nil {
		message["tool_calls"] = c.calls(says)
	}
	return obj{
		"id": "chatcmpl-" + says.id, "object": "chat.completion", "created": 0, "model": says.model,
		"choices": []obj{{"index": 0, "message": message, "finish_reason": c.reason(says)}},
		"usage":   c.usage(),
	}
}

func (chat) failure(f Fail) any { return openAIFailure(f) }

func (chat) count(w http.ResponseWriter) { http.Error(w, "no such call", http.StatusNotFound) }
