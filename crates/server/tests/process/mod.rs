//! A process with an admin interface, whose shard does not run yet.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use tidegate_io::{Clock, CommandSender, Group, Listen, open};
use tidegate_proxy::Secret;
use tidegate_server::admin::{Admin, Controls, Pages, Status};
use tidegate_server::assembly::Assembly;
use tidegate_server::audit::{AuditEntry, AuditLog};
use tidegate_server::config::Config;
use tidegate_server::metrics::Metrics;
use tidegate_server::phase::Life;
use tidegate_world::Seed;

/// The parts of the process. A test uses `group` and `commands` to run its shard.
pub struct Process<'a> {
    pub assembly: Assembly<'a>,
    pub group: Group,
    pub clock: Clock,
    pub commands: CommandSender,
    pub admin: Admin,
    pub told: Receiver<AuditEntry>,
}

impl<'a> Process<'a> {
    pub fn start(config: &'a Config, keys: &'a Secret) -> Self {
        let group = open(&Listen::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let assembly = Assembly::new(config, keys, vec![group.local()], Seed(1));
        let (clock, commands) = (Clock::start(), CommandSender::to(1));
        let (audit_log, told) = AuditLog::channel();
        let controls = Controls {
            runtime_control: Arc::new(assembly.runtime_control(commands.clone())),
            rejections: assembly.rejections(),
            bans: assembly.bans().clone(),
            keeper: None,
            audit_log,
            clock,
        };
        let pages = Pages {
            life: Arc::new(Life::new()),
            metrics: Metrics::new(),
            status: Box::new(Status::new),
            controls: Some(controls),
            hosts: config.admin.hosts.clone(),
        };
        let admin = Admin::start("127.0.0.1:0".parse().unwrap(), pages).unwrap();
        Self { assembly, group, clock, commands, admin, told }
    }
}
