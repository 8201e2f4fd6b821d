//! Options for WebSockets that a generator opens.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_io::WebSocketClient;
use tidegate_world::Transport;

use super::streams::TlsArgs;
use super::target::Target;
use crate::stage::Stage;
use tidegate::trouble::Trouble;

/// The options for the request that opens a WebSocket.
#[derive(Clone, Debug, clap::Args)]
pub struct WebSocketArgs {
    /// Path in the request that opens a WebSocket
    #[arg(long, value_name = "PATH", default_value = "/")]
    ws_path: String,

    /// Origin header in the request that opens a WebSocket, such as https://phone.example.com
    /// [default: none]
    #[arg(long, value_name = "URL")]
    origin: Option<String>,
}

impl WebSocketArgs {
    /// Opens the [`Stage`] of an agent that sends to `target` from `address`. Over WebSockets, the
    /// agent accepts no connections.
    pub fn open(
        &self,
        tls: &TlsArgs,
        target: &Target,
        transport: Transport,
        address: SocketAddr,
        slack: Duration,
    ) -> Result<Stage, Trouble> {
        let name = Some(target.host.as_str());
        match self.client(target, transport)? {
            None => tls.open(transport, address, name, slack),
            Some(client) => tls.open_client(client, transport, address, name, slack),
        }
    }

    /// Returns the request that opens a WebSocket to `target`, or `None` over another transport.
    pub fn client(
        &self,
        target: &Target,
        transport: Transport,
    ) -> Result<Option<WebSocketClient>, Trouble> {
        if !transport.is_websocket() {
            return Ok(None);
        }
        let (host, origin) = (target.http_host(transport), self.origin.as_deref());
        WebSocketClient::new(&host, &self.ws_path, origin).map(Some).map_err(Trouble::usage)
    }
}
