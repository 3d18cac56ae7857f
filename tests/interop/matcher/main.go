// matcher is small, and made of packages that the profiles in tests/testdata have hot calls in.
package main

import (
	"regexp"
	"sort"
)

func main() {
	words := regexp.MustCompile(`[a-z]+`).FindAllString("the quick brown fox", -1)
	sort.Strings(words)
	for _, word := range words {
		println(word)
	}
}
