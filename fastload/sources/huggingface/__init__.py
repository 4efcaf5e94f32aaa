"""Arrow and Parquet files of Hugging Face's datasets."""
