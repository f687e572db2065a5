    /// With this, damage, wipes and backups are staged already.
    async fn documents(&self, cluster: &ClusterName) -> Result<Option<Box<dyn DocumentStore>>, TableError> {
        Ok(Some(Box::new({{Title}}Documents::open(&self.config()?, cluster).await?)))
    }

