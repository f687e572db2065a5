    type Raw = Raw;

    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<Raw, Stop> {
        Raw::open(&backend.url(), cluster).await
    }

