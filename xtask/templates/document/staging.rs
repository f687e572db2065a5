    type Raw = DocumentAccess;

    /// Damage, wipes and backups go through the provider's own documents.
    async fn raw(backend: &ServerBackend<Self>, cluster: &ClusterName) -> Result<DocumentAccess, Stop> {
        let config = {{Title}}Config::from_url(&backend.url())?;
        let documents = {{Title}}Documents::open(&config, cluster).await?;
        Ok(DocumentAccess::new(documents))
    }

