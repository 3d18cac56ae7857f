// The Collector's receiver of OTLP before one of its exporters: which one, its settings, and the receiver's, as JSON.
// The rest of the Collector's service takes twice as long to build.
package main

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"syscall"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/exporter/xexporter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/xreceiver"
	metrics "go.opentelemetry.io/otel/metric/noop"
	traces "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
)

// host has no extensions.
type host struct{}

func (host) GetExtensions() map[component.ID]component.Component { return nil }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](made T, err error) T {
	check(err)
	return made
}

// configured returns a factory's default settings, changed by those of a text.
func configured(factory component.Factory, text string) component.Config {
	var settings map[string]any
	check(json.Unmarshal([]byte(text), &settings))
	config := factory.CreateDefaultConfig()
	check(confmap.NewFromStringMap(settings).Unmarshal(config))
	return config
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	telemetry := component.TelemetrySettings{
		Logger: must(zap.NewProduction()), Resource: pcommon.NewResource(),
		TracerProvider: traces.NewTracerProvider(), MeterProvider: metrics.NewMeterProvider(),
	}
	named := map[string]exporter.Factory{
		"otlp_grpc": otlpexporter.NewFactory(), "otlp_http": otlphttpexporter.NewFactory(),
	}
	of := named[os.Args[1]].(xexporter.Factory)
	settings := exporter.Settings{ID: component.NewID(of.Type()), TelemetrySettings: telemetry}
	exports := must(of.CreateProfiles(ctx, settings, configured(of, os.Args[2])))

	from := otlpreceiver.NewFactory().(xreceiver.Factory)
	taking := receiver.Settings{ID: component.NewID(from.Type()), TelemetrySettings: telemetry}
	receives := must(from.CreateProfiles(ctx, taking, configured(from, os.Args[3]), exports))

	check(exports.Start(ctx, host{}))
	check(receives.Start(ctx, host{}))
	<-ctx.Done()
	// What was taken and not sent yet is sent now.
	check(receives.Shutdown(context.Background()))
	check(exports.Shutdown(context.Background()))
}
