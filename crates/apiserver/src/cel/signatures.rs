//! The functions that expressions may call: what they take and give.
//!
//! The table is text, one function per line: its name, then its forms. A form is `(arguments)result`, or
//! `target.(arguments)result` for a method; `A` and `B` stand for any type. A line that begins with `!` names
//! functions that Kubernetes has and this server has not.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use super::types::Type;

#[derive(Debug)]
pub struct Form {
    pub method: bool,
    /// With the target first.
    pub args: Vec<Type>,
    pub result: Type,
}

#[derive(Debug)]
pub enum Function {
    Known(Vec<Form>),
    /// Exists on a real server only.
    Missing,
}

pub fn function(name: &str) -> Option<&'static Function> {
    static FUNCTIONS: LazyLock<BTreeMap<&str, Function>> = LazyLock::new(read);
    FUNCTIONS.get(name)
}

/// Operators and functions that compare: over these types, and numbers with each other.
const ORDERED: &[&str] = &["bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration"];

const TABLE: &str = "
_==_ (A,A)bool
_!=_ (A,A)bool
_?_:_ (bool,A,A)A
!_ (bool)bool
-_ (int)int (double)double
_+_ (int,int)int (uint,uint)uint (double,double)double (string,string)string (bytes,bytes)bytes (list(A),list(A))list(A) (timestamp,duration)timestamp (duration,timestamp)timestamp (duration,duration)duration
_-_ (int,int)int (uint,uint)uint (double,double)double (timestamp,timestamp)duration (timestamp,duration)timestamp (duration,duration)duration
_*_ (int,int)int (uint,uint)uint (double,double)double
_/_ (int,int)int (uint,uint)uint (double,double)double
_%_ (int,int)int (uint,uint)uint
_[_] (list(A),int)A (map(A,B),A)B (optional(list(A)),int)optional(A) (optional(map(A,B)),A)optional(B)
_[?_] (list(A),int)optional(A) (map(A,B),A)optional(B) (optional(list(A)),int)optional(A) (optional(map(A,B)),A)optional(B)
@in (A,list(A))bool (A,map(A,B))bool
size (string)int (bytes)int (list(A))int (map(A,B))int string.()int bytes.()int list(A).()int map(A,B).()int
int (int)int (uint)int (double)int (string)int (timestamp)int
uint (uint)uint (int)uint (double)uint (string)uint
double (double)double (int)double (uint)double (string)double
string (string)string (bool)string (int)string (uint)string (double)string (bytes)string (timestamp)string (duration)string
bool (bool)bool (string)bool
bytes (bytes)bytes (string)bytes
timestamp (timestamp)timestamp (string)timestamp (int)timestamp
duration (duration)duration (string)duration
dyn (A)dyn
contains string.(string)bool
startsWith string.(string)bool
endsWith string.(string)bool
matches string.(string)bool (string,string)bool
charAt string.(int)string
indexOf string.(string)int string.(string,int)int list(A).(A)int
lastIndexOf string.(string)int string.(string,int)int list(A).(A)int
lowerAscii string.()string
upperAscii string.()string
trim string.()string
replace string.(string,string)string string.(string,string,int)string
split string.(string)list(string) string.(string,int)list(string)
substring string.(int)string string.(int,int)string
join list(string).()string list(string).(string)string
find string.(string)string
findAll string.(string)list(string) string.(string,int)list(string)
sum list(int).()int
sets.contains (list(A),list(A))bool
sets.equivalent (list(A),list(A))bool
sets.intersects (list(A),list(A))bool
getFullYear timestamp.()int
getMonth timestamp.()int
getDate timestamp.()int
getDayOfMonth timestamp.()int
getDayOfWeek timestamp.()int
getDayOfYear timestamp.()int
getHours timestamp.()int duration.()int
getMinutes timestamp.()int duration.()int
getSeconds timestamp.()int duration.()int
getMilliseconds timestamp.()int duration.()int
optional.of (A)optional(A)
optional.none ()optional(A)
hasValue optional(A).()bool
value optional(A).()A
orValue optional(A).(A)A
or optional(A).(optional(A))optional(A)
! type optional.ofNonZeroValue optional.unwrap unwrapOpt format strings.quote first last
! slice flatten lists.range sort distinct reverse
! url isURL getScheme getHost getHostname getPort getEscapedPath getQuery
! quantity isQuantity sign isInteger asInteger asApproximateFloat add sub isGreaterThan isLessThan compareTo
! ip isIP ip.isCanonical family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast
! cidr isCIDR containsIP containsCIDR prefixLength masked
! semver isSemver major minor patch
! format.named validate format.dns1123Label format.dns1123Subdomain format.dns1035Label format.qualifiedName
! format.dns1123LabelPrefix format.dns1123SubdomainPrefix format.dns1035LabelPrefix format.labelValue
! format.uri format.uuid format.byte format.date format.datetime
! path serviceAccount group resource subresource namespace name check allowed reason errored error
! fieldSelector labelSelector
";

fn read() -> BTreeMap<&'static str, Function> {
    let mut functions = BTreeMap::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        if name == "!" {
            functions.extend(words.map(|name| (name, Function::Missing)));
            continue;
        }
        functions.insert(name, Function::Known(words.filter_map(form).collect()));
    }
    for name in ["_<_", "_<=_", "_>_", "_>=_"] {
        let mut forms: Vec<Form> = ORDERED.iter().filter_map(|t| form(&format!("({t},{t})bool"))).collect();
        for (a, b) in [("int", "uint"), ("int", "double"), ("uint", "double")] {
            forms.extend([(a, b), (b, a)].iter().filter_map(|(a, b)| form(&format!("({a},{b})bool"))));
        }
        functions.insert(name, Function::Known(forms));
    }
    for (name, own) in [("isSorted", Some("bool")), ("min", None), ("max", None)] {
        let forms = ORDERED.iter().filter_map(|t| form(&format!("list({t}).(){}", own.unwrap_or(t))));
        functions.insert(name, Function::Known(forms.collect()));
    }
    functions
}

/// `target.(arguments)result`.
fn form(text: &str) -> Option<Form> {
    let mut rest = text;
    let mut args = Vec::new();
    let method = !rest.starts_with('(');
    if method {
        args.push(read_type(&mut rest)?);
        rest = rest.strip_prefix('.')?;
    }
    rest = rest.strip_prefix('(')?;
    while !rest.starts_with(')') {
        args.push(read_type(&mut rest)?);
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    rest = rest.strip_prefix(')')?;
    let result = read_type(&mut rest)?;
    Some(Form { method, args, result })
}

fn read_type(rest: &mut &str) -> Option<Type> {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    Some(match word {
        "A" => Type::Var(0),
        "B" => Type::Var(1),
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::Text,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "dyn" => Type::Dyn,
        "list" | "map" | "optional" => {
            *rest = rest.strip_prefix('(')?;
            let first = read_type(rest)?;
            let built = match word {
                "list" => Type::list(first),
                "optional" => Type::optional(first),
                _ => {
                    *rest = rest.strip_prefix(',')?;
                    Type::map(first, read_type(rest)?)
                }
            };
            *rest = rest.strip_prefix(')')?;
            built
        }
        _ => return None,
    })
}

/// Names that stand for types on a real server.
pub fn is_type_name(name: &str) -> bool {
    static NAMES: OnceLock<Vec<&str>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        vec!["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"]
    });
    names.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_readable() {
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('!')) {
            for text in line.split(' ').skip(1) {
                assert!(form(text).is_some(), "{line}: {text}");
            }
        }
        assert!(matches!(function("_<_"), Some(Function::Known(forms)) if forms.len() == 14));
        assert!(matches!(function("quantity"), Some(Function::Missing)));
        assert!(function("nonsense").is_none());
    }
}
