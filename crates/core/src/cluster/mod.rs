//! What was observed in the cluster, arranged for questions. This room knows no role: what follows from a fact is decided elsewhere.
//!
//! Each kind of object has a file with what decisions need of it. A [`fact::Fact`] is one observation; [`table`] decides whether it is newer than
//! what is known; the [`index`] arranges all of them and says who has to be looked at again.

pub mod bits;
pub mod board;
pub mod budget;
pub mod company;
pub mod condition;
pub mod fact;
pub mod index;
pub mod instance;
pub mod key;
pub mod lease;
pub mod ledger;
pub mod life;
pub mod machine;
pub mod mark;
pub mod migration;
pub mod names;
pub mod natural;
pub mod node;
pub mod place;
pub mod pod;
pub mod pool;
pub mod replica_set;
pub mod score;
pub mod selector;
pub mod settings;
pub mod subject;
pub mod table;
pub mod taints;
pub mod tenant;
pub mod text;
pub mod text_map;
pub mod transfer;
pub mod uid;
pub mod version;
pub mod written_time;
