//! Heartbeats without a row, which the store keeps and `doctor` names.

use membership::Connectors;
use membership_core::{
    ClusterKey, Config, Heartbeat, HeartbeatWrite, InitializeRequest, Preset, TableId,
};

use crate::store::Store;
use crate::support::{now, silo};

/// The one of a silo that is gone came late.
pub fn doctor_names_a_late_heartbeat(store: &Store) {
    let place = store.place("rowless");
    let (gone, at) = (silo(7), now());
    let late = HeartbeatWrite::Silo {
        silo: gone,
        heartbeat: Heartbeat { counter: 1, at },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let cluster = place.cluster().parse().unwrap();
        let connectors = Connectors::default();
        let table = connectors.connect(place.url(), cluster).await.unwrap();
        let settings = Config::preset(Preset::Local).shared();
        let request = InitializeRequest::new(TableId::new(7), settings, ClusterKey::new([7; 32]));
        table.initialize(&request).await.unwrap();
        table.update_i_am_alive(&late).await.unwrap();
    });
    let ran = place.run(&["doctor", "--quick"]);
    let line = ran.out.lines().find(|line| line.contains("without a row"));
    let line = line.unwrap_or_else(|| panic!("{ran:?}"));
    assert!(line.contains(&gone.to_string()), "{line}");
    place
        .run(&["delete", "--cluster", place.cluster(), "--yes"])
        .expect(0);
}
