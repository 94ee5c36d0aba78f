//! What is drained: many shapes of nodes, each drawn anew from every seed.

use evac_world::random::between;
use serde_json::{Value, json};

/// What a node is like, by the numbers of a seed.
pub type Make = fn(&Draw) -> Shape;

/// The kinds of nodes, with what each is like.
pub const SHAPES: [(&str, Make); 16] = [
    ("small guests", small),
    ("guests of fixed time", fixed),
    ("guests of many sizes", sizes),
    ("one to three large guests", large),
    ("100 to 200 guests", many),
    ("targets that start slowly", slow),
    ("guests whose moves fail once", failing),
    ("pods without budgets", free),
    ("pods with grace periods", graceful),
    ("pods that ignore SIGTERM", deaf),
    ("a tight budget", tight),
    ("a loose budget", loose),
    ("several budgets", several),
    ("guests and pods", mixed),
    ("a guest that outruns its copy", outrun),
    ("a budget that never allows", never),
];

/// Numbers from one seed, each by its name.
pub struct Draw {
    pub seed: u64,
}

impl Draw {
    fn real(&self, name: &str, low: f64, high: f64) -> f64 {
        between(self.seed, name, low, high)
    }

    fn whole(&self, name: &str, low: u32, high: u32) -> u32 {
        (self.real(name, f64::from(low), f64::from(high) + 1.0) as u32).min(high)
    }

    /// As often between 1 and 10 as between 10 and 100.
    fn scale(&self, name: &str, low: f64, high: f64) -> f64 {
        self.real(name, low.ln(), high.ln()).exp()
    }
}

pub struct Guest {
    pub memory_mib: u32,
    pub annotations: Value,
}

/// Pods of one Deployment.
pub struct Pods {
    pub count: u32,
    /// Of the budget, if there is one: a number or a percentage.
    pub max_unavailable: Option<Value>,
    pub grace: u32,
    pub annotations: Value,
}

#[derive(Default)]
pub struct Shape {
    pub guests: Vec<Guest>,
    pub pods: Vec<Pods>,
    /// `spec.configuration.migrations` of KubeVirt.
    pub migrations: Value,
    /// Whether the node agents can be asked how far copies are.
    pub agents: bool,
    /// Given up after so many seconds; then there is no end that could have been foretold.
    pub timeout: Option<u64>,
}

fn limits(draw: &Draw) -> Value {
    let node = draw.whole("per node", 1, 5);
    json!({
        "parallelOutboundMigrationsPerNode": node,
        "parallelMigrationsPerCluster": draw.whole("per cluster", node.max(2), 10),
    })
}

fn agents(draw: &Draw) -> bool {
    draw.whole("agents", 0, 1) == 1
}

fn guests(count: u32, one: impl Fn(&str) -> Guest) -> Vec<Guest> {
    (0..count).map(|number| one(&format!("guest {number}"))).collect()
}

fn small(draw: &Draw) -> Shape {
    let guest = |name: &str| Guest {
        memory_mib: draw.whole(&format!("{name} memory"), 64, 512),
        annotations: json!({"evac.dev/dirty-rate": draw.whole(&format!("{name} dirty"), 0, 80).to_string()}),
    };
    Shape { guests: guests(draw.whole("guests", 10, 40), guest), agents: agents(draw), ..Shape::default() }
}

fn fixed(draw: &Draw) -> Shape {
    let longest = draw.real("longest", 3.0, 30.0);
    let guest = |name: &str| Guest {
        memory_mib: 128,
        annotations: json!({
            "evac.dev/migration-seconds": format!("{:.1}", draw.real(&format!("{name} takes"), longest * 0.7, longest)),
        }),
    };
    Shape {
        guests: guests(draw.whole("guests", 4, 30), guest),
        agents: agents(draw),
        migrations: limits(draw),
        ..Shape::default()
    }
}

fn sized(draw: &Draw, most: f64, dirtiest: u32) -> impl Fn(&str) -> Guest {
    move |name: &str| Guest {
        memory_mib: draw.scale(&format!("{name} memory"), 128.0, most) as u32,
        annotations: json!({"evac.dev/dirty-rate": draw.whole(&format!("{name} dirty"), 0, dirtiest).to_string()}),
    }
}

fn sizes(draw: &Draw) -> Shape {
    let mut migrations = limits(draw);
    let bandwidth = draw.whole("bandwidth", 64, 400);
    migrations["bandwidthPerMigration"] = json!(format!("{bandwidth}Mi"));
    Shape {
        guests: guests(draw.whole("guests", 5, 40), sized(draw, 16_384.0, bandwidth / 2)),
        agents: agents(draw),
        migrations,
        ..Shape::default()
    }
}

fn large(draw: &Draw) -> Shape {
    let guest = |name: &str| Guest {
        memory_mib: draw.scale(&format!("{name} memory"), 8_000.0, 65_000.0) as u32,
        annotations: json!({"evac.dev/dirty-rate": draw.whole(&format!("{name} dirty"), 0, 300).to_string()}),
    };
    Shape { guests: guests(draw.whole("guests", 1, 3), guest), agents: true, ..Shape::default() }
}

fn many(draw: &Draw) -> Shape {
    Shape {
        guests: guests(draw.whole("guests", 100, 200), sized(draw, 1024.0, 50)),
        agents: agents(draw),
        migrations: limits(draw),
        ..Shape::default()
    }
}

fn slow(draw: &Draw) -> Shape {
    let longest = draw.real("start", 3.0, 20.0);
    let guest = |name: &str| Guest {
        memory_mib: draw.whole(&format!("{name} memory"), 64, 2048),
        annotations: json!({
            "evac.dev/start-seconds": format!("{:.1}", draw.real(&format!("{name} start"), longest / 2.0, longest)),
        }),
    };
    Shape {
        guests: guests(draw.whole("guests", 4, 30), guest),
        agents: agents(draw),
        migrations: limits(draw),
        ..Shape::default()
    }
}

fn failing(draw: &Draw) -> Shape {
    let mut shape = fixed(draw);
    for guest in shape.guests.iter_mut().step_by(5) {
        guest.annotations["evac.dev/migration-fails"] = json!("1");
    }
    shape
}

fn pods(draw: &Draw, name: &str, count: u32, max_unavailable: Option<Value>, ready: f64) -> Pods {
    Pods {
        count,
        max_unavailable,
        grace: 30,
        annotations: json!({
            "evac.dev/stop-seconds": format!("{:.1}", draw.real(&format!("{name} stop"), 0.2, 4.0)),
            "evac.dev/ready-after-seconds": format!("{:.1}", draw.real(&format!("{name} ready"), 0.0, ready)),
        }),
    }
}

fn free(draw: &Draw) -> Shape {
    let kinds = draw.whole("kinds", 1, 5);
    let count = draw.whole("pods", 20, 250) / kinds;
    let pods = (0..kinds).map(|kind| pods(draw, &format!("kind {kind}"), count, None, 0.0)).collect();
    Shape { pods, ..Shape::default() }
}

fn graceful(draw: &Draw) -> Shape {
    let kind = |kind: u32| {
        let name = format!("kind {kind}");
        let grace = [30, 60, 120][draw.whole(&format!("{name} grace"), 0, 2) as usize];
        Pods {
            count: draw.whole(&name, 3, 20),
            // Some leave in turn, and so show those behind them how long it takes.
            max_unavailable: (kind == 0).then(|| json!(draw.whole("away", 1, 4))),
            grace,
            annotations: json!({
                "evac.dev/stop-seconds": format!("{:.1}", draw.real(&format!("{name} stop"), 2.0, f64::from(grace))),
            }),
        }
    };
    Shape { pods: (0..draw.whole("kinds", 1, 3)).map(kind).collect(), ..Shape::default() }
}

fn deaf(draw: &Draw) -> Shape {
    let mut shape = graceful(draw);
    for pods in &mut shape.pods {
        pods.annotations["evac.dev/stop-seconds"] = json!("1000");
    }
    shape
}

fn tight(draw: &Draw) -> Shape {
    let away = draw.whole("away", 1, 3);
    let pods = pods(draw, "kind", draw.whole("pods", 8, 60), Some(json!(away)), 8.0);
    Shape { pods: vec![pods], ..Shape::default() }
}

fn loose(draw: &Draw) -> Shape {
    let share = format!("{}%", draw.whole("share", 10, 40));
    let pods = pods(draw, "kind", draw.whole("pods", 30, 140), Some(json!(share)), 10.0);
    Shape { pods: vec![pods], ..Shape::default() }
}

fn several(draw: &Draw) -> Shape {
    let kind = |kind: u32| {
        let name = format!("kind {kind}");
        let away = draw.whole(&format!("{name} away"), 1, 5);
        pods(draw, &name, draw.whole(&format!("{name} pods"), 4, 30), Some(json!(away)), 12.0)
    };
    Shape { pods: (0..draw.whole("kinds", 2, 6)).map(kind).collect(), ..Shape::default() }
}

fn mixed(draw: &Draw) -> Shape {
    let guests = guests(draw.whole("guests", 3, 20), sized(draw, 8192.0, 60));
    let pods = [several(draw).pods, graceful(draw).pods].into_iter().flatten().collect();
    Shape { guests, pods, agents: agents(draw), migrations: limits(draw), ..Shape::default() }
}

fn outrun(draw: &Draw) -> Shape {
    let mut shape = sizes(draw);
    shape.guests.truncate(8);
    shape.guests.push(Guest { memory_mib: 20_000, annotations: json!({"evac.dev/dirty-rate": "2000"}) });
    shape.agents = true;
    shape.timeout = Some(300);
    shape
}

fn never(draw: &Draw) -> Shape {
    let mut shape = several(draw);
    shape.pods.push(pods(draw, "never", 3, Some(json!(0)), 0.0));
    shape.timeout = Some(600);
    shape
}
