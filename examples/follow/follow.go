// Follows a cluster through one of its silos: go run follow.go http://127.0.0.1:9700
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
)

func main() {
	answer, err := http.Get(os.Args[1] + "/api/v1/events")
	if err != nil {
		panic(err)
	}
	for lines := bufio.NewReader(answer.Body); err == nil; {
		var line string
		var event struct{ Members []struct{ Silo, Status string } }
		line, err = lines.ReadString('\n')
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &event) == nil {
			for _, silo := range event.Members {
				fmt.Println(silo.Silo, silo.Status)
			}
		}
	}
}
