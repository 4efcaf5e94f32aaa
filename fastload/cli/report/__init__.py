"""Results as documents: Markdown, JSON, and self-contained HTML with plots."""
