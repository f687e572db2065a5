//! A task whose panic is told, and does not just make its handles wait.

/// Runs a future in a task of its own; the text of its panic, if it panicked.
pub(crate) async fn panic_of(run: impl Future<Output = ()> + Send + 'static) -> Option<String> {
    let panic = tokio::spawn(run).await.err()?.try_into_panic().ok()?;
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Some(text.unwrap_or_else(|| "a value without text".to_owned()))
}
