//! Send three messages by a common Rust library: senders KIND HOST PORT.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use opentelemetry::logs::{AnyValue, LogRecord, Logger, LoggerProvider, Severity};
use opentelemetry_otlp::{LogExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, logs::SdkLoggerProvider};
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::{client::ClientBuilder, record::Record};
use syslog::{Facility, Formatter3164, Formatter5424};
use tracing_subscriber::layer::SubscriberExt;

const TEXTS: [&str; 3] = ["first message", "second: with a colon", "third one, grüße"];

fn send_gelf(host: &str, port: u16) {
    gelf_logger::Builder::new()
        .parse_filters("info")
        .tcp(None)
        .hostname(host.into())
        .port(port)
        .tls(false)
        .null_character(true)
        .init();
    TEXTS.iter().for_each(|text| log::info!("{text}"));
    log::logger().flush();
    std::thread::sleep(Duration::from_millis(500));
}

async fn send_gelf_datagrams(address: String) {
    let (layer, mut handle) = tracing_gelf::Logger::builder().host("web-1").connect_udp(address).unwrap();
    let sending = tokio::spawn(async move { handle.connect().await });
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        TEXTS.iter().for_each(|text| tracing::info!("{text}"));
    });
    sending.await.unwrap();
}

#[derive(serde::Serialize)]
struct Order {
    message: &'static str,
    number: usize,
}

fn send_forward(address: String) {
    use poston::{Client, Settings, WorkerPool};
    let pool = WorkerPool::with_settings(&address, &Settings::default()).unwrap();
    for (number, message) in TEXTS.iter().enumerate() {
        let record = Order { message, number };
        pool.send("shop.orders".into(), &record, UNIX_EPOCH + Duration::from_millis(1_795_369_000_125)).unwrap();
    }
    pool.terminate().unwrap();
}

async fn send_hec(host: &str, port: u16) {
    use splunk::{hec::HecClient, server_config::ServerConfig};
    let server = ServerConfig::builder(host).with_port(port).use_tls(false).with_token("anything".into()).build().unwrap();
    HecClient::with_serverconfig(server).with_source("shop").send_events(TEXTS.to_vec()).await.unwrap();
}

async fn read_flight(address: &str) {
    use arrow_array::cast::AsArray;
    use arrow_flight::{FlightClient, FlightDescriptor};
    use futures_util::TryStreamExt;
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = FlightClient::new(channel);
    let info = client.get_flight_info(FlightDescriptor::new_path(vec!["shop".into()])).await.unwrap();
    for endpoint in info.endpoint {
        let mut batches = client.do_get(endpoint.ticket.unwrap()).await.unwrap();
        while let Some(batch) = batches.try_next().await.unwrap() {
            let column = batch.column_by_name("payload").unwrap();
            let print = |payload: &[u8]| println!("{}", String::from_utf8_lossy(payload));
            match column.as_binary_opt::<i32>() {
                Some(payloads) => payloads.iter().flatten().for_each(print),
                None => column.as_binary::<i64>().iter().flatten().for_each(print),
            }
        }
    }
}

fn send_otlp(exporter: LogExporter) {
    let resource = Resource::builder_empty().with_service_name("shop").build();
    let provider = SdkLoggerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
    let logger = provider.logger("checkout");
    for (number, text) in TEXTS.iter().enumerate() {
        let mut record = logger.create_log_record();
        record.set_timestamp(UNIX_EPOCH + Duration::from_millis(1_795_369_000_125));
        record.set_severity_number(Severity::Info);
        record.set_body(AnyValue::from(*text));
        record.add_attribute("number", number as i64);
        logger.emit(record);
    }
    provider.shutdown().unwrap();
}

async fn send_loki(address: &str) {
    let url = url::Url::parse(&format!("http://{address}")).unwrap();
    let (layer, controller, task) =
        tracing_loki::builder().label("app", "shop").unwrap().build_controller_url(url).unwrap();
    let sending = tokio::spawn(task);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        TEXTS.iter().for_each(|text| tracing::info!("{text}"));
    });
    controller.shutdown().await;
    sending.await.unwrap();
}

async fn send_bulk(address: &str) {
    use elasticsearch::{BulkOperation, BulkParts, Elasticsearch, http::transport::Transport};
    let client = Elasticsearch::new(Transport::single_node(&format!("http://{address}")).unwrap());
    let document = |(number, text)| BulkOperation::from(BulkOperation::create(serde_json::json!({"message": text, "number": number})));
    let documents: Vec<BulkOperation<serde_json::Value>> = TEXTS.iter().enumerate().map(document).collect();
    let answer = client.bulk(BulkParts::Index("shop")).body(documents).send().await.unwrap();
    let answer: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(answer["errors"], false, "{answer}");
}

async fn kafka(address: &str, read: bool) {
    let client = ClientBuilder::new(vec![address.into()]).build().await.unwrap();
    let partition = client.partition_client("shop", 0, UnknownTopicHandling::Retry).await.unwrap();
    if read {
        let start = partition.get_offset(OffsetAt::Earliest).await.unwrap();
        let (records, _) = partition.fetch_records(start, 1..1_000_000, 1_000).await.unwrap();
        records.iter().for_each(|row| println!("{}", String::from_utf8_lossy(row.record.value.as_ref().unwrap())));
        return;
    }
    let record = |text: &&str| Record {
        key: None,
        value: Some(text.as_bytes().to_vec()),
        headers: BTreeMap::from([("app".to_owned(), b"shop".to_vec())]),
        timestamp: chrono::Utc::now(),
    };
    partition.produce(TEXTS.iter().map(record).collect(), Compression::NoCompression).await.unwrap();
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (kind, host, port) = (arguments[1].as_str(), arguments[2].as_str(), arguments[3].parse::<u16>().unwrap());
    let address = format!("{host}:{port}");
    let short = || Formatter3164 { facility: Facility::LOG_USER, hostname: Some("web-1".into()), process: "shop".into(), pid: 77 };
    let long = Formatter5424 { facility: Facility::LOG_USER, hostname: Some("web-1".into()), process: "shop".into(), pid: 77 };
    match kind {
        "syslog udp" => {
            let mut logger = syslog::udp(short(), "127.0.0.1:0", &address).unwrap();
            TEXTS.iter().for_each(|text| logger.info(text).unwrap());
        }
        // The library leaves the end of a message over TCP to the application.
        "syslog tcp" => {
            let mut logger = syslog::tcp(short(), &address).unwrap();
            TEXTS.iter().for_each(|text| logger.info(format!("{text}\n")).unwrap());
        }
        "syslog tcp, RFC 5424" => {
            let mut logger = syslog::tcp(long, &address).unwrap();
            TEXTS.iter().for_each(|text| logger.info((0, Default::default(), format!("{text}\n"))).unwrap());
        }
        "syslog udp, RFC 5424" => {
            let mut logger = syslog::udp(long, "127.0.0.1:0", &address).unwrap();
            TEXTS.iter().for_each(|text| logger.info((0, Default::default(), *text)).unwrap());
        }
        "gelf udp" => send_gelf_datagrams(address).await,
        "forward tcp" => tokio::task::spawn_blocking(move || send_forward(address)).await.unwrap(),
        "hec http" => send_hec(host, port).await,
        "gelf tcp" => tokio::task::spawn_blocking({ let host = host.to_owned(); move || send_gelf(&host, port) }).await.unwrap(),
        "otlp grpc" => {
            let exporter = LogExporter::builder().with_tonic().with_endpoint(format!("http://{address}")).build();
            send_otlp(exporter.unwrap());
        }
        "otlp http" => {
            let endpoint = format!("http://{address}/v1/logs");
            tokio::task::spawn_blocking(move || send_otlp(LogExporter::builder().with_http().with_endpoint(endpoint).build().unwrap())).await.unwrap();
        }
        "loki http" => send_loki(&address).await,
        "bulk http" => send_bulk(&address).await,
        "kafka" => kafka(&address, false).await,
        "read kafka" => kafka(&address, true).await,
        "read flight" => read_flight(&address).await,
        _ => panic!("{kind}"),
    }
}
