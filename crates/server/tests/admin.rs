//! Tests of the admin interface over a real socket.

mod http;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use http::{HOST, ask};
use tidegate_server::admin::{Admin, Pages, Status};
use tidegate_server::metrics::{Family, Metrics};
use tidegate_server::phase::{Life, Phase};

static SCRAPES: Family = Family::counter("test_scrapes", "Times this was read");

fn start() -> (Admin, Arc<Life>) {
    let life = Arc::new(Life::new());
    let mut metrics = Metrics::new();
    let scrapes = AtomicU64::new(0);
    metrics.add(move |samples| {
        samples.push(&SCRAPES, &[], scrapes.fetch_add(1, Ordering::Relaxed) + 1);
    });
    let status = Box::new(|| Status::from_iter([("shards".to_owned(), 2.into())]));
    let pages = pages(&life, metrics, status);
    (Admin::start("127.0.0.1:0".parse().unwrap(), pages).unwrap(), life)
}

fn pages(
    life: &Arc<Life>,
    metrics: Metrics,
    status: Box<dyn Fn() -> Status + Send + Sync>,
) -> Pages {
    let (life, controls, hosts) = (Arc::clone(life), None, Vec::new());
    Pages { life, metrics, status, controls, hosts }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Returns all bytes until the peer closes.
fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8(bytes).unwrap(),
    }
}

/// Sends one request. Returns the status and the body of the response.
fn request(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    ask(address, method, path, HOST, "")
}

#[test]
fn it_is_ready_only_while_admitting() {
    let (admin, life) = start();
    let get = |path| request(admin.address(), "GET", path);
    assert_eq!(get("/readyz"), (503, "starting\n".to_owned()));
    life.advance(Phase::Admitting);
    assert_eq!(get("/readyz"), (200, "admitting\n".to_owned()));
    assert!(get("/status").1.contains("\"phase\": \"admitting\""));
    life.advance(Phase::Draining);
    assert_eq!(get("/readyz"), (503, "draining\n".to_owned()));
    assert_eq!(get("/healthz"), (200, "alive\n".to_owned()));
}

#[test]
fn metrics_and_status_are_read_at_each_request() {
    let (admin, _life) = start();
    let get = |path| request(admin.address(), "GET", path);
    assert!(get("/metrics").1.contains("\ntidegate_test_scrapes_total 1\n"));
    let (code, second) = get("/metrics");
    assert_eq!(code, 200);
    assert!(second.contains("\ntidegate_test_scrapes_total 2\n"), "{second}");
    assert!(second.ends_with("# EOF\n"));

    let (code, status) = get("/status");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(code, 200);
    assert_eq!(status["shards"], 2);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
}

/// Starts an admin interface whose page of metrics is not complete until the sender is dropped. The
/// receiver gets a message when a client asks for the page. Drop the sender before the interface,
/// because the interface waits for its pages.
fn with_a_slow_page() -> (Admin, Sender<()>, Receiver<()>) {
    let (begin, begun) = channel();
    let (end, ended) = channel::<()>();
    let ended = Mutex::new(ended);
    let (life, mut metrics) = (Arc::new(Life::new()), Metrics::new());
    metrics.add(move |_| {
        begin.send(()).unwrap();
        let _ = ended.lock().unwrap().recv();
    });
    let pages = pages(&life, metrics, Box::new(Status::new));
    let admin = Admin::start("127.0.0.1:0".parse().unwrap(), pages).unwrap();
    (admin, end, begun)
}

/// A regression: while Prometheus read the metrics of many back ends, a load balancer got no
/// response to its health checks.
#[test]
fn a_page_that_takes_long_does_not_delay_others() {
    let (admin, end, begun) = with_a_slow_page();
    let address = admin.address();
    let scrape = thread::spawn(move || request(address, "GET", "/metrics").0);
    begun.recv().unwrap();
    assert_eq!(request(address, "GET", "/healthz"), (200, "alive\n".to_owned()));
    drop(end);
    assert_eq!(scrape.join().unwrap(), 200);
}

/// A regression: a stop waited without end for a page that waited for a file system.
#[test]
fn the_end_does_not_wait_for_a_page_that_hangs() {
    let (admin, end, begun) = with_a_slow_page();
    let mut client = connect(admin.address());
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    begun.recv().unwrap();
    let (dropped, drops) = channel();
    thread::spawn(move || {
        drop(admin);
        dropped.send(())
    });
    let is_dropped = drops.recv_timeout(Duration::from_secs(30));
    drop(end);
    assert_eq!(is_dropped, Ok(()));
}

#[test]
fn policies_are_described_with_their_parameters() {
    let (admin, _life) = start();
    let (code, policies) = request(admin.address(), "GET", "/policies");
    assert_eq!(code, 200);
    let policies: serde_json::Value = serde_json::from_str(&policies).unwrap();
    let tlwl = policies.as_array().unwrap().iter().find(|policy| policy["name"] == "tlwl");
    let param = &tlwl.unwrap()["params"][0];
    assert_eq!((param["name"].as_str(), param["default"].as_f64()), (Some("invite"), Some(1.75)));
}

#[test]
fn other_pages_and_methods_are_rejected() {
    let (admin, _life) = start();
    let (code, body) = request(admin.address(), "GET", "/");
    assert_eq!(code, 404);
    assert!(body.contains("/metrics"), "{body}");
    assert_eq!(request(admin.address(), "POST", "/status").0, 405);
}

#[test]
fn a_request_head_without_end_is_cut_off() {
    let (admin, _life) = start();
    let mut stream = connect(admin.address());
    stream.write_all(b"GET /healthz HTTP/1.1\r\nX: ").unwrap();
    // The peer closes the connection long before 1 MiB is sent. Writing then returns an error.
    let filler = [b'x'; 4096];
    let sent = (0..256).take_while(|_| stream.write_all(&filler).is_ok()).count();
    let answer = rest(stream);
    assert!(sent < 256 || answer.starts_with("HTTP/1.1 431"), "{sent} {answer:?}");
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer:?}");
}

/// A regression: with 64 open connections, an attacker could keep a load balancer from checking the
/// process.
#[test]
fn silent_and_slow_connections_do_not_block_others() {
    let (admin, life) = start();
    life.advance(Phase::Admitting);
    let mut kept = connect(admin.address());
    let ready = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let asked = |kept: &mut TcpStream| {
        kept.write_all(ready.as_bytes()).unwrap();
        let mut bytes = [0; 1000];
        let length = kept.read(&mut bytes).unwrap();
        bytes[..length].starts_with(b"HTTP/1.1 200")
    };
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = connect(admin.address());
        stream.write_all(b"GET /readyz HTTP/1.1\r\nX-Slow: ").unwrap();
        slow.push(stream);
        // A busy client is not the one that has been idle longest, so its connection stays open.
        assert!(asked(&mut kept));
    }
    assert_eq!(request(admin.address(), "GET", "/readyz"), (200, "admitting\n".to_owned()));
    // The 63 newest of these connections stay open until their time limit. The others were closed.
    for stream in slow {
        assert_eq!(rest(stream), "");
    }
    let metrics = request(admin.address(), "GET", "/metrics").1;
    assert!(metrics.contains("tidegate_admin_connections_refused_total 138\n"), "{metrics}");
}

#[test]
fn an_address_in_use_is_a_start_error_and_free_again_after_the_end() {
    let (admin, life) = start();
    let address = admin.address();
    assert_ne!(address.port(), 0);
    let again = || {
        let status = Box::new(Status::new);
        Admin::start(address, pages(&life, Metrics::new(), status))
    };
    let error = again().unwrap_err();
    assert!(error.what.contains("Address already in use"), "{error}");
    assert!(error.remedy.contains("[admin] address"), "{error}");

    let open = connect(address);
    drop(admin);
    assert_eq!(rest(open), "", "connections end with the interface");
    assert!(again().is_ok());
}
