//! A process whose listener is gone: nobody can dial it, but it runs, and the connections that it
//! opens work.

use crate::cluster::Cluster;
use crate::ground_truth::ProcessId;

impl Cluster {
    /// Takes away the listener of a process. Messages to its address are lost, and nobody is
    /// refused. It still sends, and answers by its own connections still reach it.
    pub fn lose_listener(&mut self, silo: ProcessId) {
        let Some(process) = self.processes.get(silo.0).filter(|p| p.is_running()) else {
            return;
        };
        let (endpoint, host) = (process.endpoint, process.host);
        if self.listeners.get(&endpoint) != Some(&silo) {
            return;
        }
        self.listeners.remove(&endpoint);
        self.silent.insert(endpoint);
        self.deaf.insert(silo);
        self.stats.deaf += 1;
        self.note(silo, "has no listener any more".to_owned());
        self.update_lossy(host);
    }

    /// Gives a process its listener back.
    pub fn regain_listener(&mut self, silo: ProcessId) {
        if !self.deaf.remove(&silo) {
            return;
        }
        let Some(process) = self.processes.get(silo.0) else {
            return;
        };
        let (endpoint, host) = (process.endpoint, process.host);
        self.note(silo, "listens again".to_owned());
        if !self.listeners.contains_key(&endpoint) {
            self.listen(silo);
        }
        self.update_lossy(host);
    }

    /// Gives every process its listener back.
    pub(super) fn regain_listeners(&mut self) {
        for silo in self.deaf.clone() {
            self.regain_listener(silo);
        }
    }
}
