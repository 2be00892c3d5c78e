//! Pages in Markdown.

mod engines;
mod performance;
mod products;
mod readme;
mod text;

pub use performance::performance_md;
pub use readme::{README_BEGIN, README_END, readme_table, replace_region};
