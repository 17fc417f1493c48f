package modelstub

import (
	"encoding/json"
	"net/http"
)

// gemini writes the generateContent calls of the Gemini API. The model and
// whether to stream stand in the path and are read by route.
type gemini struct{}

func (gemini) read(asked *Request, body json.RawMessage) bool {
	var in struct {
		Tools []struct {
			Functions []struct{ Name string } `json:"functionDeclarations"`
		}
		Contents []struct {
			Parts []struct {
				Response *struct {
					ID       string
					Response json.RawMessage
				} `json:"functionResponse"`
			}
		}
	}
	if json.Unmarshal(body, &in) != nil {
		return false
	}
	for _, tool := range in.Tools {
		for _, function := range tool.Functions {
			asked.Tools = append(asked.Tools, function.Name)
		}
	}
	for _, content := range in.Contents {
		for _, part := range content.Parts {
			if part.Response != nil {
				asked.Results = append(asked.Results, Result{ID: part.Response.ID, Text: string(part.Response.Response)})
			}
		}
	}
	return true
}

func (gemini) answer(says reply, parts []obj, finish string) obj {
	candidate := obj{"index": 0, "content": obj{"role": "model", "parts": parts}}
	if finish != "" {
		candidate["finishReason"] = finish
	}
	return obj{
		"candidates": []obj{candidate}, "modelVersion": says.model, "responseId": says.id,
		"usageMetadata": obj{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
	}
}

func (gemini) call(says reply) obj {
	return obj{"functionCall": obj{"id": says.id, "name": says.call.Name, "args": says.call.Args}}
}

// head sends nothing: this API has no event before the first content.
func (gemini) head(*events, reply) {}

func (g gemini) tell(out *events, says reply, parts []string) {
	for _, part := range parts {
		out.send("", g.answer(says, []obj{{"text": part}}, ""))
	}
	last := []obj{{"text": ""}}
	if says.call != nil {
		last = []obj{g.call(says)}
	}
	out.send("", g.answer(says, last, "STOP"))
}

func (g gemini) whole(says reply) any {
	var parts []obj
	if says.text != "" {
		parts = append(parts, obj{"text": says.text})
	}
	if says.call != nil {
		parts = append(parts, g.call(says))
	}
	return g.answer(says, parts, "STOP")
}

func (gemini) failure(f Fail) any {
	kind := f.Kind
	if kind == "" {
		kind = map[int]string{
			400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED",
			429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE",
		}[f.Status]
	}
	if kind == "" {
		kind = "INTERNAL"
	}
	return obj{"error": obj{"code": f.Status, "message": f.Message, "status": kind}}
}

func (gemini) count(w http.ResponseWriter) {
	writeJSON(w, http.StatusOK, obj{"totalTokens": 10})
}
