// Follows a cluster through its silos: go run follow.go http://127.0.0.1:9700 http://127.0.0.1:9701
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

var known = map[string]string{}

func follow(url string) error {
	answer, err := http.Get(url + "/api/v1/events")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", answer.Status)
	}
	for lines := bufio.NewReader(answer.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		var event struct{ Members []struct{ Silo, Status string } }
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &event) == nil {
			for _, silo := range event.Members {
				if known[silo.Silo] != silo.Status {
					fmt.Println(silo.Silo, silo.Status)
				}
				known[silo.Silo] = silo.Status
			}
		}
	}
}

func main() {
	urls := os.Args[1:]
	for turn := 0; len(urls) > 0; turn++ {
		url := urls[turn%len(urls)]
		// It is gone, or still joining.
		fmt.Fprintf(os.Stderr, "%s: %v; asking the next one\n", url, follow(url))
		time.Sleep(time.Second)
	}
}
