// pusher submits a profile as the client inside pgo-fleet's users does: a reader whose length nobody knows,
// posted to the full URL of the route, the key as a bearer token; 200 and 204 are success.
//
//	KEY=... pusher URL FILE
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	file, err := os.Open(os.Args[2])
	check(err)
	// Wrapped, since net/http would find out the length of what it knows.
	request, err := http.NewRequest(http.MethodPost, os.Args[1], io.MultiReader(file))
	check(err)
	request.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))
	response, err := http.DefaultClient.Do(request)
	check(err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNoContent {
		body, _ := io.ReadAll(response.Body)
		check(fmt.Errorf("%s: %s", response.Status, body))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
