// Reads a dashboard from standard input with Grafana's own types: unknown members, missing ones and values out of bounds are errors.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	text, err := io.ReadAll(os.Stdin)
	check(err)
	var found dashboard.Dashboard
	check(found.UnmarshalJSONStrict(text))
	check(found.Validate())
	fmt.Println(len(found.Panels), "panels")
}

func check(err error) {
	// What collects errors returns its empty list as an error without a word.
	if err != nil && err.Error() != "" {
		fmt.Println(err)
		os.Exit(1)
	}
}
