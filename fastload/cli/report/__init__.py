"""Results as documents: Markdown, JSON, and HTML with plots that needs nothing beside itself."""
