    /// With this, damage, wipes and backups are staged already.
    async fn documents(&self, cluster: &ClusterName) -> Result<Option<Box<dyn DocumentStore>>, TableError> {
        let config = {{Title}}Config::from_url(&self.server.url())?;
        Ok(Some(Box::new({{Title}}Documents::open(&config, cluster).await?)))
    }

