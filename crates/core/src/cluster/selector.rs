//! Label selectors and the rules for labels, as all of this program reads them.

pub use evac_apimachinery::labels::{Operator, Selector, SelectorError};
pub use evac_apimachinery::validation::{is_label_value, is_qualified_name};
