//! A silo whose join, and each call of its table, is a span of OpenTelemetry. Here the spans are
//! printed; put the exporter of your collector in the place of `SpanExporter`.
//!
//! ```sh
//! cargo run -p traces -- sqlite:membership.db
//! ```

use membership::{Connectors, Silo};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_stdout::SpanExporter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let traces = SdkTracerProvider::builder()
        .with_simple_exporter(SpanExporter::default())
        .build();
    // The join is a span at the level info, each call of the table one at the level debug.
    let filter = EnvFilter::new("off,membership::join=info,membership::table=debug");
    tracing_subscriber::registry()
        .with(filter)
        .with(tracing_opentelemetry::layer().with_tracer(traces.tracer("service")))
        .init();

    let url = std::env::args()
        .nth(1)
        .ok_or("give the table, for example sqlite:membership.db")?;
    let table = Connectors::default()
        .connect(&url, "traces".parse()?)
        .await?;
    let silo = Silo::builder(table)
        .listen(([127, 0, 0, 1], 0).into())
        .start()
        .await?;
    silo.leave().await;
    traces.shutdown()?;
    Ok(())
}
