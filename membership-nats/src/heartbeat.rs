//! Cells beside the document: one key each.

use std::sync::PoisonError;

use bytes::Bytes;
use futures_util::future::try_join_all;
use membership_core::{SiloAddress, TableError};

use crate::NatsDocuments;
use crate::keys::silo_cell;

impl NatsDocuments {
    /// Overwrites a cell, whoever wrote it last. The write is conditional on the sequence of the
    /// last one, so that one which a frozen server or a full queue has delayed, and whose caller has
    /// given up, does not land after a newer one.
    pub(crate) async fn put_cell(&self, name: &str, text: &str) -> Result<(), TableError> {
        let deadline = self.client.config().timeouts.deadline();
        let link = self.client.ready(deadline).await?;
        let subject = self.keys.cell(name);
        let requests = async {
            let text = Bytes::copy_from_slice(text.as_bytes());
            let mut last = self.written.get(name).unwrap_or_default();
            loop {
                let write = self.write_if(&link, &subject, &subject, last, &text);
                match write.await? {
                    Ok(sequence) => return Ok(sequence),
                    Err(found) => last = found,
                }
            }
        };
        let sequence = self.client.in_time(deadline, &link, true, requests).await?;
        self.written.set(name, sequence);
        let mut seen = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        // Only a read knows the bucket: a cell that is not known yet is found there.
        let known = seen.1.get_mut(name);
        if let Some(known) = known.filter(|known| known.sequence < sequence) {
            (known.sequence, known.text) = (sequence, text.to_owned());
        }
        Ok(())
    }

    /// The subjects of these silos' cells, or of all cells.
    pub(crate) fn cells_of(&self, silos: Option<&[SiloAddress]>) -> Vec<String> {
        match silos {
            None => vec![self.keys.cells.clone()],
            Some(silos) => silos
                .iter()
                .map(|silo| self.keys.cell(&silo_cell(silo)))
                .collect(),
        }
    }

    /// Removes the cells of these subjects.
    pub(crate) async fn remove_cells(&self, subjects: Vec<String>) -> Result<(), TableError> {
        let deadline = self.client.config().timeouts.deadline();
        let link = self.client.ready(deadline).await?;
        let mut purges = Vec::new();
        for subject in &subjects {
            purges.push(link.purge(&self.keys.stream, subject));
        }
        let requests = async { try_join_all(purges).await.map(drop) };
        self.client.in_time(deadline, &link, true, requests).await
    }
}
